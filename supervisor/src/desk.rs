//! The board, behind one desk: a thread of its own that looks at its files and writes them, one thing after the
//! other.
//!
//! Board files are read and written with plain, durable system calls, which may take a while. Whoever wants
//! something done there hands it in and waits for the answer; nobody else is held up.

use std::sync::mpsc;
use std::thread;

use agency_protocols::board::{Board, BoardError};
use agency_protocols::store::tree::Tree;
use agency_protocols::store::{Effects, Store};
use tokio::sync::oneshot;

type Errand = Box<dyn FnOnce(&Store, &dyn Board) + Send>;

/// Where things are handed in.
#[derive(Debug, Clone)]
pub struct Desk {
    counter: mpsc::Sender<Errand>,
    pub protocol: &'static str,
    pub folder: Option<&'static str>,
    /// Globs of what is the board's.
    pub own: Vec<String>,
    pub profiles: Option<&'static str>,
}

impl Desk {
    /// `open` is called on the desk's own thread: a board's files are held by nobody else.
    pub fn open<E: Send + 'static>(
        open: impl FnOnce() -> Result<(Store, Box<dyn Board>), E> + Send + 'static,
    ) -> Result<Self, E> {
        let (counter, waiting) = mpsc::channel::<Errand>();
        let (opened, answer) = mpsc::channel();
        thread::spawn(move || match open() {
            Ok((store, board)) => {
                let names = (board.protocol(), board.folder(), board.own(), board.profiles());
                if opened.send(Ok(names)).is_ok() {
                    for errand in waiting {
                        errand(&store, board.as_ref());
                    }
                }
            }
            Err(error) => drop(opened.send(Err(error))),
        });
        // The thread answers before it does anything else, or the process is coming to its end.
        let (protocol, folder, own, profiles) = match answer.recv() {
            Ok(answer) => answer?,
            Err(_) => unreachable!("the desk's thread always answers"),
        };
        Ok(Self { counter, protocol, folder, own, profiles })
    }

    /// Looks at the board.
    pub async fn look<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&dyn Board, &Tree) -> Result<T, BoardError> + Send + 'static,
    ) -> Result<T, BoardError> {
        self.hand_in(move |store, board| verb(board, store.tree())).await
    }

    /// Changes it, under the lock that keeps everybody else out.
    pub async fn act<T: Send + 'static>(
        &self,
        mut verb: impl FnMut(&dyn Board, &Tree) -> Result<(T, Effects), BoardError> + Send + 'static,
    ) -> Result<T, BoardError> {
        self.hand_in(move |store, board| store.update(|tree| verb(board, tree))).await
    }

    async fn hand_in<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&Store, &dyn Board) -> Result<T, BoardError> + Send + 'static,
    ) -> Result<T, BoardError> {
        let (done, answer) = oneshot::channel();
        let errand: Errand = Box::new(move |store, board| drop(done.send(verb(store, board))));
        let closed = || BoardError::Refused { reason: "the board's desk is closed".to_owned(), hint: None };
        self.counter.send(errand).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}
