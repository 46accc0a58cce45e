//! The thread that reads and writes the board's files, one thing after the other.
//!
//! Board files are read and written with plain, durable system calls, which may take a while. A caller hands in
//! what it wants done and waits for the answer; no other caller is held up.

use std::sync::mpsc;
use std::thread;

use agency_protocols::board::{Board, BoardAgenda, BoardError, WaitingTask};
use agency_protocols::store::tree::RepoTree;
use agency_protocols::store::{BoardStore, Effects};
use tokio::sync::oneshot;

use crate::board_sync::BoardSync;

type BoardJob = Box<dyn FnOnce(&BoardAccess<'_>) + Send>;

/// What is on the board thread.
struct BoardAccess<'a> {
    store: &'a BoardStore,
    board: &'a dyn Board,
    /// Where git carries it, if git does.
    sharing: Option<&'a BoardSync>,
}

/// Where things are handed in.
#[derive(Debug, Clone)]
pub struct BoardThread {
    counter: mpsc::Sender<BoardJob>,
    pub protocol: &'static str,
    pub folder: Option<&'static str>,
    /// Globs of what is the board's.
    pub own: Vec<String>,
    /// Where a person adds what an agent may change.
    pub scope_field: &'static str,
    /// Others take tasks from it, too.
    pub shared: bool,
    pub profiles: Option<&'static str>,
}

impl BoardThread {
    /// Calls `open` on the board thread: no other thread holds a board's files.
    pub fn open<E: Send + 'static>(
        sharing: Option<BoardSync>,
        open: impl FnOnce() -> Result<(BoardStore, Box<dyn Board>), E> + Send + 'static,
    ) -> Result<Self, E> {
        let (counter, waiting) = mpsc::channel::<BoardJob>();
        let (opened, answer) = mpsc::channel();
        thread::spawn(move || match open() {
            Ok((store, board)) => {
                let names = (
                    board.protocol(),
                    board.folder(),
                    board.owned_globs(),
                    board.scope_field(),
                    board.profiles_folder(),
                    board.is_shared(),
                );
                if opened.send(Ok(names)).is_ok() {
                    let sharing = sharing.as_ref().filter(|_| board.is_shared());
                    let counter = BoardAccess { store: &store, board: board.as_ref(), sharing };
                    for job in waiting {
                        job(&counter);
                    }
                }
            }
            Err(error) => drop(opened.send(Err(error))),
        });
        // The thread answers before it does anything else, or the process is coming to its end.
        let (protocol, folder, own, scope_field, profiles, shared) = match answer.recv() {
            Ok(answer) => answer?,
            Err(_) => unreachable!("the board thread always answers"),
        };
        Ok(Self { counter, protocol, folder, own, scope_field, shared, profiles })
    }

    /// Looks at the board.
    pub async fn read<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&dyn Board, &RepoTree) -> Result<T, BoardError> + Send + 'static,
    ) -> Result<T, BoardError> {
        self.submit(move |counter| verb(counter.board, counter.store.tree())).await
    }

    /// Changes it, under the lock that keeps every other process out.
    pub async fn write<T: Send + 'static>(
        &self,
        mut verb: impl FnMut(&dyn Board, &RepoTree) -> Result<(T, Effects), BoardError> + Send + 'static,
    ) -> Result<T, BoardError> {
        self.submit(move |BoardAccess { store, board, sharing }| match sharing {
            Some(sharing) => sharing.act(store, &mut |tree| verb(*board, tree)),
            None => store.update(|tree| verb(*board, tree)),
        })
        .await
    }

    /// Looks at what there is to do on the board as others have it, if it is shared and that was not done just now.
    /// Where a person has to bring this clone and the others together first, nothing is there to start.
    pub async fn read_agenda(&self) -> Result<(&'static str, BoardAgenda), BoardError> {
        self.submit(move |counter| {
            let apart = counter.sharing.and_then(BoardSync::refresh_if_stale);
            let mut agenda = counter.board.agenda(counter.store.tree())?;
            if let Some(why) = apart {
                let held =
                    agenda.ready.drain(..).map(|start| WaitingTask { task: start.task, why: why.clone() });
                agenda.waiting.extend(held);
            }
            Ok((counter.board.protocol(), agenda))
        })
        .await
    }

    async fn submit<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&BoardAccess<'_>) -> Result<T, BoardError> + Send + 'static,
    ) -> Result<T, BoardError> {
        let (done, answer) = oneshot::channel();
        let job: BoardJob = Box::new(move |counter| drop(done.send(verb(counter))));
        let closed = || BoardError::Refused { reason: "the board thread has ended".to_owned(), hint: None };
        self.counter.send(job).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}
