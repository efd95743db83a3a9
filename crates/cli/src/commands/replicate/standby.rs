//! The standby: a volume here or on another machine, reached by the dendro command there.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use dendro_stream::Token;
use serde_json::Value;

use crate::args::replicate::ReplicateArgs;
use crate::failure::{Failure, usage};

/// How many snapshots are deleted by one command.
const DELETED_TOGETHER: usize = 50;

/// How to reach the standby.
#[derive(Debug)]
pub(super) struct Standby {
    /// What runs a command line on the host, with the host; `None`: the standby is here.
    remote: Option<(Vec<String>, String)>,
    volume: String,
    /// As the user named it.
    named: String,
}

/// What the standby has.
#[derive(Debug)]
pub(super) struct Present {
    pub(super) uuid: String,
    pub(super) snapshots: Vec<Kept>,
    /// How far a snapshot was received that has broken off.
    pub(super) part: Option<Token>,
}

/// A snapshot of the standby.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) name: String,
    pub(super) created_unix_ns: i64,
    pub(super) held: bool,
}

impl Standby {
    pub(super) fn find(args: &ReplicateArgs) -> Result<Self, Failure> {
        let named = args.standby.clone();
        let host = named.split_once(':').filter(|(host, _)| {
            !host.is_empty() && !host.contains('/') && !Path::new(&named).exists()
        });
        let Some((host, volume)) = host else {
            return Ok(Self { remote: None, volume: named.clone(), named });
        };
        let mut rsh: Vec<String> = args.rsh.split_whitespace().map(str::to_owned).collect();
        if rsh.is_empty() || host.starts_with('-') || volume.is_empty() {
            return Err(usage(format_args!("{named}: name a volume as HOST:PATH")));
        }
        rsh.push(host.to_owned());
        let (volume, dendro) = (volume.to_owned(), args.remote_dendro.clone());
        Ok(Self { remote: Some((rsh, dendro)), volume, named })
    }

    pub(super) fn named(&self) -> &str {
        &self.named
    }

    fn fail(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(format_args!("{}: {why}", self.named))
    }

    /// The command `dendro` with these arguments, where the standby is.
    fn command(&self, arguments: &[&str]) -> Result<Command, Failure> {
        let mut command = match &self.remote {
            None => {
                let program = std::env::current_exe().map(OsString::from);
                let mut command = Command::new(program.map_err(|error| self.fail(error))?);
                command.args(arguments);
                command
            }
            Some((rsh, dendro)) => {
                let mut command = Command::new(&rsh[0]);
                let words = arguments.iter().map(|word| format!(" {}", quoted(word)));
                let line = words.fold(dendro.clone(), |line, word| line + &word);
                command.args(&rsh[1..]).arg(line);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs a command, and returns what it printed.
    fn run(&self, arguments: &[&str]) -> Result<Vec<u8>, Failure> {
        let output = self.command(arguments)?.output().map_err(|error| self.fail(error))?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(self.fail(said(&output.stderr, output.status))),
        }
    }

    fn ask(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let printed = self.run(arguments)?;
        serde_json::from_slice(&printed)
            .map_err(|error| self.fail(format_args!("dendro {}: {error}", arguments[0])))
    }

    /// What the standby has now.
    pub(super) fn look(&self) -> Result<Present, Failure> {
        let info = self.ask(&["info", "--json", &self.volume])?;
        let listed = self.ask(&["snapshot", "list", "--named", "--json", &self.volume])?;
        let part = info["received_parts"][0]["token"].as_str();
        let snapshots = listed["snapshots"].as_array().into_iter().flatten().filter_map(|of| {
            Some(Kept {
                name: of["name"].as_str()?.to_owned(),
                created_unix_ns: of["created_unix_ns"].as_i64()?,
                held: of["held"].as_bool()?,
            })
        });
        Ok(Present {
            uuid: info["uuid"].as_str().unwrap_or_default().to_owned(),
            snapshots: snapshots.collect(),
            part: part.and_then(|token| token.parse().ok()),
        })
    }

    /// Gives up what was received in part.
    pub(super) fn abort(&self) -> Result<(), Failure> {
        self.run(&["-q", "receive", "--abort", &self.volume]).map(drop)
    }

    /// Deletes snapshots.
    pub(super) fn delete(&self, names: &[String]) -> Result<(), Failure> {
        for names in names.chunks(DELETED_TOGETHER) {
            let named: Vec<String> = names.iter().map(|name| format!("@{name}")).collect();
            let first = format!("{}{}", self.volume, named[0]);
            let mut arguments = vec!["-q", "snapshot", "delete", &first];
            arguments.extend(named[1..].iter().map(|name| &**name));
            self.run(&arguments)?;
        }
        Ok(())
    }

    /// Has the standby receive what `send` writes.
    pub(super) fn receive<T>(
        &self,
        send: impl FnOnce(&mut Pipe) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut command = self.command(&["-q", "receive", "--resumable", &self.volume])?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut child = child.map_err(|error| self.fail(error))?;
        let mut pipe = Pipe(child.stdin.take());
        let sent = send(&mut pipe);
        // The end of the pipe is the end of the stream.
        drop(pipe);
        let ended = self.end(&mut child);
        match (sent, ended) {
            (Ok(sent), Ok(())) => Ok(sent),
            // The reason why a pipe is closed is what the other end says.
            (_, Err(failure)) | (Err(failure), Ok(())) => Err(failure),
        }
    }

    /// Waits until the receiver has ended.
    fn end(&self, child: &mut Child) -> Result<(), Failure> {
        let mut stderr = Vec::new();
        if let Some(mut pipe) = child.stderr.take() {
            pipe.read_to_end(&mut stderr).map_err(|error| self.fail(error))?;
        }
        let status = child.wait().map_err(|error| self.fail(error))?;
        if status.success() { Ok(()) } else { Err(self.fail(said(&stderr, status))) }
    }
}

/// The pipe to the receiver.
pub(super) struct Pipe(Option<ChildStdin>);

impl Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        match &mut self.0 {
            Some(pipe) => pipe.write(buf),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Why a command has failed: its last line.
fn said(stderr: &[u8], status: std::process::ExitStatus) -> String {
    let text = String::from_utf8_lossy(stderr);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.map_or_else(|| format!("it failed: {status}"), str::to_owned)
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./@:,+=".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/srv/a.img@b"), "/srv/a.img@b");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's; $x"), r"'it'\''s; $x'");
        assert_eq!(quoted(""), "''");
    }
}
