//! The clients of a volume.

use dendro_base::random_bytes;
use dendro_control::AdminError;
use dendro_control::versions::{ClientInfo, DeletedInfo, VersionsReply};
use dendro_disk::{Client, ClientKind, FIRST_CLIENT, VersionTable, View};
use dendro_fs::{FormatOptions, contents_of, create_client};

use super::context::{Answer, Service, refuse, refuse_disk};

/// The name of a client, if it has one.
fn name_of(client: &Client, table: &VersionTable) -> Option<String> {
    Some(table.branch(client.head?)?.name.clone())
}

impl Service {
    fn client_info(&self, client: &Client, table: &VersionTable) -> ClientInfo {
        let head = |branch| View { branch, epoch: None };
        let any = client.head.map(head).or_else(|| client.views.first().copied());
        // What cannot be read is not known.
        let kind = any.and_then(|view| contents_of(&*self.disk, view).ok());
        let heads = client.views.iter().filter(|view| view.epoch.is_none()).count();
        ClientInfo {
            client: client.number,
            name: name_of(client, table),
            kind: kind.map_or("unknown", ClientKind::name).to_owned(),
            original: client.number == FIRST_CLIENT,
            branch_count: heads,
            snapshot_count: client.views.len() - heads,
            created_unix_ns: client.head.and_then(|of| table.branch(of)).map(|of| of.time.0),
            quota_bytes: table.quota_of(client.number),
            used_bytes: any.and_then(|view| self.disk.quota(view)).map(|quota| quota.used_bytes),
        }
    }

    pub(super) fn clients(&self, table: &VersionTable) -> Vec<ClientInfo> {
        table.clients().iter().map(|client| self.client_info(client, table)).collect()
    }

    pub(super) fn create_client(
        &self,
        name: &str,
        kind: &str,
        (uid, gid): (u32, u32),
        quota_bytes: Option<u64>,
    ) -> Answer<VersionsReply> {
        let kind = ClientKind::named(kind).ok_or_else(|| {
            AdminError(format!("{kind} is no kind of client; there is files, and application"))
        })?;
        if kind == ClientKind::Block {
            let why = "a block device has a size; `dendro block create` makes one";
            return Err(AdminError(why.into()));
        }
        let hash_key = random_bytes().map_err(refuse)?;
        let files = FormatOptions { uid, gid, mode: 0o755, label: name.to_owned(), hash_key };
        let made = create_client(&*self.disk, name, kind, quota_bytes, &files, &*self.clock);
        self.client_now(made.map_err(refuse)?.branch)
    }

    /// The client that `branch` belongs to, as it is now.
    fn client_now(&self, branch: u32) -> Answer<VersionsReply> {
        let table = self.disk.versions();
        let number = table.client_of(branch).0;
        let client = table.clients().into_iter().find(|client| client.number == number);
        let client = client.ok_or_else(|| AdminError("the client is gone again".into()))?;
        self.done(VersionsReply::Client(self.client_info(&client, &table)))
    }

    pub(super) fn set_quota(
        &self,
        table: &VersionTable,
        client: &str,
        quota_bytes: Option<u64>,
    ) -> Answer<VersionsReply> {
        let client = self.client(table, client)?;
        let of = client.views.first().map_or(client.number, |view| view.branch);
        self.disk.set_quota(of, quota_bytes).map_err(refuse_disk)?;
        self.client_now(of)
    }

    /// The client called `name`.
    fn client(&self, table: &VersionTable, name: &str) -> Answer<Client> {
        let mut clients = table.clients();
        let named = |client: &Client| name_of(client, table);
        if let Some(at) = clients.iter().position(|of| named(of).as_deref() == Some(name)) {
            return Ok(clients.swap_remove(at));
        }
        let owner = table.branch_named(name).map(|branch| table.client_of(branch.branch).0);
        let owner = owner.and_then(|owner| clients.iter().find(|client| client.number == owner));
        Err(AdminError(match owner.and_then(named) {
            Some(owner) => format!("{name} is a branch of the client {owner}; name that"),
            None => {
                let all: Vec<_> = clients.iter().filter_map(named).collect();
                format!("there is no client called {name}; there is {}", all.join(", "))
            }
        }))
    }

    pub(super) fn delete_client(
        &self,
        table: &VersionTable,
        name: &str,
        dry_run: bool,
    ) -> Answer<Vec<DeletedInfo>> {
        let client = self.client(table, name)?;
        if client.views.contains(&table.main_head()) {
            return Err(AdminError(format!(
                "{name} is what the volume was made for, and cannot be deleted; mkfs.dendro makes \
                 another volume"
            )));
        }
        // The head that has the name goes last, so that what a crash leaves can be named.
        let mut views = client.views;
        views.sort_by_key(|view| (view.epoch.is_none(), Some(view.branch) == client.head));
        self.delete_views(table, views, dry_run)
    }

    pub(super) fn rename_client(
        &self,
        table: &VersionTable,
        client: &str,
        name: &str,
    ) -> Answer<VersionsReply> {
        let head = self.client(table, client)?.head;
        let head = head.ok_or_else(|| AdminError(format!("{client} has no branch any more")))?;
        self.disk.rename(View { branch: head, epoch: None }, name).map_err(refuse_disk)?;
        self.done(VersionsReply::Done)
    }
}
