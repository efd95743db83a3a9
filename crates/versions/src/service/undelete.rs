//! Undelete: copying files out of the past.

use std::sync::Arc;

use dendro_control::AdminError;
use dendro_control::versions::{RestoredInfo, VersionName, path_text};
use dendro_disk::{VersionTable, View};
use dendro_fs::versions::{Tree, restore};
use dendro_fs::{FileSystem, FsError, Ino, Options};

use super::context::{Answer, Service, bytes_of, refuse};
use super::info;

/// A path as a directory and a name in it.
fn split(path: &[u8]) -> Answer<(&[u8], &[u8])> {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match &path[start..end] {
        b"" | b"." | b".." => Err(AdminError(format!(
            "{}: the path must end in a name; `dendro rollback` brings the whole volume back",
            path_text(path)
        ))),
        name => Ok((&path[..start], name)),
    }
}

impl Service {
    pub(super) fn undelete(
        &self,
        table: &VersionTable,
        from: Option<&VersionName>,
        path: &str,
        to: Option<&str>,
    ) -> Answer<RestoredInfo> {
        let target = self.here(table);
        if target.epoch.is_some() {
            return Err(AdminError(format!(
                "{} is past, and nothing can be put there",
                info::called(target, table)
            )));
        }
        let source_path = bytes_of(path)?;
        let target_path = to.map_or_else(|| Ok(source_path.clone()), bytes_of)?;
        let (parent_path, name) = split(&target_path)?;
        let parent = self.lookup(target, parent_path)?.ok_or_else(|| {
            let parent = path_text(parent_path);
            AdminError(format!("{parent}: there is no such directory now; bring it back first"))
        })?;
        if self.lookup(target, &target_path)?.is_some() {
            return Err(AdminError(format!(
                "{}: it is there now; --to puts what was there before under another path",
                path_text(&target_path)
            )));
        }
        let may_make = Tree::new(&*self.disk, target)
            .and_then(|tree| tree.seen_by(self.who()).check_making(parent));
        may_make.map_err(|error| refuse(format_args!("{}: {error}", path_text(parent_path))))?;
        let (view, ino) = match from {
            Some(from) => {
                let view = self.resolve(table, from)?;
                let found = self.lookup(view, &source_path)?;
                let found = found.ok_or_else(|| {
                    AdminError(format!("{path}: {} does not have it", info::called(view, table)))
                });
                (view, found?)
            }
            None => self.newest(table, target, &source_path)?,
        };
        let options = Options { view, read_only: true, ..Options::default() };
        let past = self.open(options)?;
        let done = match self.mounted.iter().find(|(fs, _)| fs.view() == target) {
            Some((fs, _)) => restore(&past, ino, fs, parent, name, self.who()),
            None => {
                let fs = self.open(Options { view: target, ..Options::default() })?;
                let done = restore(&past, ino, &fs, parent, name, self.who());
                done.and_then(|done| fs.close().map(|()| done))
            }
        };
        let restored = done.map_err(|error| refuse(format_args!("{path}: {error}")))?;
        if let Some(on_new_name) = &self.on_new_name {
            on_new_name(target, parent, name);
        }
        Ok(RestoredInfo {
            path: path_text(&target_path),
            epoch: view.epoch,
            files: restored.file_count,
            directories: restored.directory_count,
            data_bytes: restored.data_bytes,
        })
    }

    /// The newest snapshot in the past of `head` in which `path` names a file.
    fn newest(&self, table: &VersionTable, head: View, path: &[u8]) -> Answer<(View, Ino)> {
        let mut denied = None;
        for snapshot in table.past(head) {
            match self.find(snapshot.view(), path) {
                Ok(Some(ino)) => return Ok((snapshot.view(), ino)),
                Ok(None) => {}
                // An older snapshot may have permissions that allow it.
                Err(error @ FsError::Denied(_)) => denied = Some(error),
                Err(error) => return Err(refuse(format_args!("{}: {error}", path_text(path)))),
            }
        }
        let path = path_text(path);
        Err(match denied {
            Some(error) => refuse(format_args!("{path}: {error}")),
            None => AdminError(format!(
                "{path}: no snapshot has it; `dendro undelete --list` of its directory lists what \
                 can be had"
            )),
        })
    }

    fn lookup(&self, view: View, path: &[u8]) -> Answer<Option<Ino>> {
        let found = self.find(view, path);
        found.map_err(|error| refuse(format_args!("{}: {error}", path_text(path))))
    }

    fn find(&self, view: View, path: &[u8]) -> dendro_fs::Result<Option<Ino>> {
        let tree = Tree::new(&*self.disk, view);
        match tree.and_then(|tree| tree.seen_by(self.who()).resolve(path)) {
            // Retention has deleted it meanwhile.
            Err(FsError::Disk(dendro_disk::Error::NoSuchView(_))) if view.epoch.is_some() => {
                Ok(None)
            }
            other => other,
        }
    }

    fn open(&self, options: Options) -> Answer<FileSystem> {
        let disk = Arc::clone(&self.disk);
        FileSystem::mount(disk, options, Arc::clone(&self.clock)).map_err(refuse)
    }
}
