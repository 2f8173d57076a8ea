//! Tests that the tokio wrappers read and write the right bytes and return errors to the task.

use std::io::SeekFrom;

use seqio::tokio::{AsyncReader, AsyncWriter};
use seqio::{Cache, Options};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use crate::bench::{content, folder};

fn ways() -> [Options; 3] {
    [
        Options::new(),
        Options::new().cache(Cache::Direct).request_bytes(65536).depth(4),
        Options::new().cache(Cache::Buffered).request_bytes(65536),
    ]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn tasks_write_and_read_the_same_bytes() {
    for options in ways() {
        let folder = folder();
        let path = folder.path().join("file");
        let wanted = content(3_456_789, 4);
        runtime().block_on(async {
            let mut writer = AsyncWriter::from(options.create(&path).unwrap());
            for part in wanted.chunks(100_000) {
                writer.write_all(part).await.unwrap();
            }
            writer.flush().await.unwrap();
            let seen = std::fs::read(&path).unwrap();
            assert!(seen[..wanted.len()] == wanted, "flush must write all bytes");
            writer.write_all(b"end").await.unwrap();
            writer.shutdown().await.unwrap();
            assert!(writer.write_all(b"more").await.is_err(), "a write after shutdown must fail");

            let mut all = Vec::new();
            let mut reader = AsyncReader::from(options.open(&path).unwrap());
            reader.read_to_end(&mut all).await.unwrap();
            assert!(all[..wanted.len()] == wanted && &all[wanted.len()..] == b"end");

            let mut reader = AsyncReader::from(options.open(&path).unwrap());
            let mut bytes = 0;
            loop {
                let ready = reader.fill_buf().await.unwrap().len();
                if ready == 0 {
                    break;
                }
                reader.consume(ready);
                bytes += ready;
            }
            assert_eq!(bytes, wanted.len() + 3);
        });
    }
}

#[test]
fn an_error_reaches_the_task() {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, content(1 << 20, 1)).unwrap();
    let mut reader = Options::new().open(&path).unwrap();
    std::io::Seek::seek(&mut reader, SeekFrom::Start(5)).unwrap();
    runtime().block_on(async {
        let mut all = Vec::new();
        AsyncReader::from(reader).read_to_end(&mut all).await.unwrap();
        assert_eq!(all.len(), (1 << 20) - 5);
        let folder = Options::new().open(folder.path()).unwrap();
        let error = AsyncReader::from(folder).read_to_end(&mut all).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::IsADirectory);
    });
}
