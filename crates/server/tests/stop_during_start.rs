//! A server that is stopped during its start leaves nothing on the machine. Needs root.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{fs, path::Path, process::Command, time::Duration};

use soulbox_server::{Config, ServiceManager, Settings, serve};

/// For a start to come to what is waited for. With the next one, less than what a test may take.
const MOMENT: Duration = Duration::from_secs(75);
/// The server's own bound for taking a start back is a minute.
const STOP: Duration = Duration::from_secs(70);

/// The tag of everything that the server makes.
fn tag(data_dir: &Path) -> Option<String> {
    let text = fs::read(data_dir.join("instance.json")).ok()?;
    let instance: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(instance["tag"].as_str()?.to_owned())
}

fn links(tag: &str) -> Vec<String> {
    let links = fs::read_dir("/sys/class/net").unwrap();
    let names = links.map(|link| link.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(tag)).collect()
}

fn groups(tag: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let hierarchies = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (place, kind) = (words.nth(1)?, words.next()?);
        kind.starts_with("cgroup").then_some(place)
    });
    hierarchies
        .map(|place| format!("{place}/soulbox-{tag}"))
        .filter(|group| Path::new(group).exists())
        .collect()
}

fn tables(tag: &str) -> Vec<String> {
    let listed = Command::new("nft")
        .args(["list", "tables"])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let tables = listed.lines().filter(|table| table.contains(tag));
    tables.map(str::to_owned).collect()
}

/// Whether it came to hold in time: the first start makes the template.
async fn until(mut holds: impl FnMut() -> bool) -> bool {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(MOMENT, waiting).await.is_ok()
}

fn config(data_dir: &Path) -> Option<Config> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a server needs root");
        return None;
    }
    let config = Config::try_from(Settings {
        data_dir: Some(data_dir.to_owned()),
        listen: Some("127.0.0.1:0".parse().unwrap()),
        https: Some("off".parse().unwrap()),
        admin: Some("off".parse().unwrap()),
        ..Settings::default()
    });
    Some(config.unwrap())
}

/// Stops the server when `holds`; also when it never does, so that this leaves nothing either.
async fn serve_until(config: &Config, what: &str, holds: impl FnMut() -> bool) {
    let mut held = false;
    let no_manager = ServiceManager::at(None);
    let served = serve(config.clone(), &no_manager, async {
        held = until(holds).await;
    });
    let ended = tokio::time::timeout(MOMENT + STOP, served).await;
    let Ok(served) = ended else {
        panic!("the server, stopped at {what}, did not end within {STOP:?}");
    };
    served.unwrap();
    assert!(held, "{what}: not seen within {MOMENT:?} of the start");
}

type IsThere = Box<dyn Fn(&str) -> bool>;

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_during_the_start_leaves_neither_links_nor_rules_nor_groups() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let Some(config) = config(&data_dir) else {
        return;
    };
    // The first start makes the template, the others find it.
    let holder = |tag: &str| links(tag).contains(&format!("sbx{tag}"));
    let moments: [(&str, IsThere); 3] = [
        (
            "the groups' parent",
            Box::new(|tag| !groups(tag).is_empty()),
        ),
        ("the link", Box::new(holder)),
        ("the rules", Box::new(|tag| !tables(tag).is_empty())),
    ];
    for (what, is_there) in moments {
        let holds = || tag(&data_dir).is_some_and(|tag| is_there(&tag));
        serve_until(&config, what, holds).await;
        let tag = tag(&data_dir).unwrap();
        let left = (links(&tag), tables(&tag), groups(&tag));
        assert_eq!(left, (vec![], vec![], vec![]), "stopped at {what}");
    }
}

#[test]
fn nothing_is_written_after_a_start_that_was_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let Some(config) = config(&data_dir) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let begun = || data_dir.join("templates").exists();
    runtime.block_on(serve_until(&config, "the templates' folder", begun));
    fs::remove_dir_all(&data_dir).unwrap();
    // Waits for threads that are still at work.
    drop(runtime);
    assert!(!data_dir.exists());
}
