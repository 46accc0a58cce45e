//! What the way out costs: a gibibyte from a server on this machine to a client in a sandbox, directly, through
//! a tunnel of the proxy, and through a forwarded port, in turn, so that whatever else the machine does falls
//! on all alike.
//!
//! `bench_egress [ROUNDS]` measures; `bench_egress receive ADDRESS [TARGET]` is the client it runs inside.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::time::Instant;

use agency_tests::repository::{Repository, actors};

const BYTES: u64 = 1 << 30;
const PIECE: usize = 256 * 1024;
/// The proxy's address inside.
const PROXY: &str = "127.0.0.1:28128";
/// How fast a tunnel is to be at least, as a part of a direct connection.
const TARGET: f64 = 0.5;

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address] => receive(address, None).map(|seconds| println!("{seconds}")),
        ["receive", address, target] => receive(address, Some(target)).map(|seconds| println!("{seconds}")),
        _ => bench(arguments.first().and_then(|text| text.parse().ok()).unwrap_or(5)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_egress: {error}");
            ExitCode::from(1)
        }
    }
}

#[allow(clippy::print_stdout)]
fn bench(rounds: usize) -> io::Result<()> {
    let server = TcpListener::bind("127.0.0.1:0")?;
    let address = server.local_addr()?.to_string();
    std::thread::spawn(move || {
        for stream in server.incoming().flatten() {
            std::thread::spawn(move || send(stream));
        }
    });
    println!(
        "{:<6} {:>12} {:>12} {:>12} {:>8} {:>8}",
        "as", "direct", "tunnel", "forwarded", "ratio", "ratio"
    );
    let mut held = true;
    for actor in actors() {
        let repository = Repository::new(actor, &[("README", "")])?;
        let program = repository.path().join("bench_egress");
        fs::copy(std::env::current_exe()?, &program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let ways: [(&str, &[&str]); 3] =
            [("full", &[&address]), (&address, &[PROXY, &address]), (&address, &[&address])];
        let mut seconds = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for ((net, words), seconds) in ways.iter().zip(&mut seconds) {
                seconds.push(run(&repository, net, words)?);
            }
        }
        let [direct, tunnel, forwarded] = seconds.map(|seconds| BYTES as f64 / median(seconds) / 1e9);
        held &= tunnel / direct >= TARGET;
        println!(
            "{:<6} {direct:>7.2} GB/s {tunnel:>7.2} GB/s {forwarded:>7.2} GB/s {:>8.2} {:>8.2}",
            format!("{actor:?}").to_lowercase(),
            tunnel / direct,
            forwarded / direct,
        );
    }
    println!("target {TARGET}: {}", if held { "held" } else { "not held" });
    Ok(())
}

/// Seconds for one transfer, as the client in the sandbox measured them.
fn run(repository: &Repository, net: &str, words: &[&str]) -> io::Result<f64> {
    let mut command = repository.sandbox(&["--net", net, "--", "./bench_egress", "receive"]);
    let output = command.args(words).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| io::Error::other(format!("{command:?}: {output:?}")))
}

fn send(mut stream: TcpStream) -> io::Result<()> {
    let piece = vec![b'x'; PIECE];
    for _ in 0..BYTES / PIECE as u64 {
        stream.write_all(&piece)?;
    }
    Ok(())
}

/// Reads to the end, from a proxy's tunnel if there is one to ask for.
fn receive(address: &str, target: Option<&str>) -> io::Result<f64> {
    let mut stream = TcpStream::connect(address)?;
    let mut answer = Vec::new();
    if let Some(target) = target {
        write!(stream, "CONNECT {target} HTTP/1.1\r\n\r\n")?;
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            answer.extend(byte);
        }
    }
    let start = Instant::now();
    let (mut piece, mut received) = (vec![0; PIECE], 0);
    loop {
        match stream.read(&mut piece)? {
            0 if received == BYTES => return Ok(start.elapsed().as_secs_f64()),
            0 => return Err(io::Error::other(format!("only {received} bytes arrived"))),
            length => received += length as u64,
        }
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
