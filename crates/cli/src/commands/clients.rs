//! `dendro client`: several users of one volume, each with versions of its own.

use dendro_control::versions::{ClientInfo, VersionName, VersionsReply, VersionsRequest};
use dendro_daemon::text::size;

use super::versions::{deleted, print_deleted, print_renamed};
use crate::args::clients::{ClientArgs, ClientVerb, Kind, Quota};
use crate::failure::{Failure, usage};
use crate::output::local_time::time;
use crate::output::{self, columns, json};
use crate::target::{Keeper, Place, find_version, find_whole, unexpected};

pub(crate) fn run(args: &ClientArgs) -> Result<(), Failure> {
    match &args.verb {
        ClientVerb::List { target, json } => list(target, *json),
        ClientVerb::Create { target, kind, quota, json } => create(target, *kind, *quota, *json),
        ClientVerb::Set { target, quota, json } => set(target, *quota, *json),
        ClientVerb::Delete { target, dry_run, verbose, json } => {
            let (keeper, name) = named(target)?;
            let request = VersionsRequest::DeleteClient { name, dry_run: *dry_run };
            let versions = deleted(keeper.ask(request)?)?;
            print_deleted(&versions, [*dry_run, *verbose || *dry_run, *json])
        }
        ClientVerb::Rename { target, name, json } => rename(target, name, *json),
    }
}

/// The volume and the client that `target` names.
fn named(target: &str) -> Result<(Keeper, String), Failure> {
    let Place { keeper, version, path } = find_version(target)?;
    match version {
        VersionName { branch: Some(name), moment: None } => Ok((keeper, name)),
        _ => {
            let path = path.display();
            Err(usage(format_args!("{target}: say which client, as in {path}:CLIENT")))
        }
    }
}

fn list(target: &str, as_json: bool) -> Result<(), Failure> {
    let clients = match find_whole(target)?.ask(VersionsRequest::Clients)? {
        VersionsReply::Clients(clients) => clients,
        other => return Err(unexpected(&other)),
    };
    match as_json {
        true => json::print_list("clients", &clients),
        false => output::print(&list_text(&clients)),
    }
}

fn list_text(clients: &[ClientInfo]) -> String {
    let row = |client: &ClientInfo| {
        [
            client.name.as_ref().map_or_else(|| "-".into(), |name| format!(":{name}")),
            client.kind.clone(),
            client.created_unix_ns.map_or_else(|| "-".into(), time),
            client.branch_count.to_string(),
            client.snapshot_count.to_string(),
            client.used_bytes.map_or_else(|| "-".into(), size),
            client.quota_bytes.map_or_else(|| "none".into(), size),
        ]
    };
    let rows: Vec<_> = clients.iter().map(row).collect();
    let head = ["NAME", "KIND", "MADE", "BRANCHES", "SNAPSHOTS", "USED", "QUOTA"];
    columns(head, &rows, &[3, 4, 5, 6])
}

fn set(target: &str, Quota(quota_bytes): Quota, as_json: bool) -> Result<(), Failure> {
    let (keeper, client) = named(target)?;
    print_made(keeper.ask(VersionsRequest::SetQuota { client, quota_bytes })?, as_json)
}

fn create(
    target: &str,
    kind: Kind,
    quota_bytes: Option<u64>,
    as_json: bool,
) -> Result<(), Failure> {
    let (keeper, name) = named(target)?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let kind = kind.name().to_owned();
    let request = VersionsRequest::CreateClient { name, kind, uid, gid, quota_bytes };
    print_made(keeper.ask(request)?, as_json)
}

fn print_made(reply: VersionsReply, as_json: bool) -> Result<(), Failure> {
    match reply {
        VersionsReply::Client(made) if as_json => json::print(&made),
        VersionsReply::Client(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn rename(target: &str, name: &str, as_json: bool) -> Result<(), Failure> {
    let (keeper, client) = named(target)?;
    let request = VersionsRequest::RenameClient { client: client.clone(), name: name.to_owned() };
    match keeper.ask(request)? {
        VersionsReply::Done => print_renamed(format!(":{client}"), format!(":{name}"), as_json),
        other => Err(unexpected(&other)),
    }
}
