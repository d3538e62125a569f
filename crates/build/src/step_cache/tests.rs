use super::*;

struct Place {
    folder: tempfile::TempDir,
    leases: Leases,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            leases: Leases::default(),
        }
    }

    fn open(&self) -> StepCache {
        StepCache::open(self.folder.path().join("steps"), self.leases.clone()).unwrap()
    }
}

fn key(step: &str) -> Key {
    let tenant = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    Key::base(&tenant, &[step])
}

fn state() -> State {
    State {
        env: [("A".to_owned(), "b".to_owned())].into(),
        user: "user".to_owned(),
        workdir: None,
    }
}

/// As a node exports: a directory with a file.
async fn make(steps: &StepCache, key: &Key, content: &str) -> StepResult {
    let _lock = steps.lock(key).await;
    let draft = steps.begin(key);
    let layer = draft.path().join("0");
    fs_err::create_dir_all(&layer).unwrap();
    fs_err::write(layer.join("file"), content).unwrap();
    let added = AddedLayer {
        target: "/".into(),
        directory: layer,
    };
    steps
        .finish(draft, state(), vec![added], "RUN x".to_owned(), false)
        .await
        .unwrap()
}

fn content(done: &StepResult) -> String {
    fs_err::read_to_string(done.layers[0].directory.join("file")).unwrap()
}

fn count(place: &Place) -> usize {
    fs_err::read_dir(place.folder.path().join("steps"))
        .unwrap()
        .count()
}

#[tokio::test]
async fn what_was_made_is_found_also_after_a_restart() {
    let place = Place::new();
    let steps = place.open();
    assert!(steps.find(&key("a")).await.is_none());
    let made = make(&steps, &key("a"), "one").await;
    for steps in [steps, place.open()] {
        let found = steps.find(&key("a")).await.unwrap();
        assert_eq!(
            (found.layers.clone(), found.state.clone()),
            (made.layers.clone(), state())
        );
        assert_eq!(content(&found), "one");
    }
}

#[tokio::test]
async fn a_step_made_again_leaves_the_old_files_to_whoever_stands_on_them() {
    let place = Place::new();
    let steps = place.open();
    let old = make(&steps, &key("a"), "old").await;
    make(&steps, &key("a"), "new").await;
    assert_eq!(content(&old), "old");
    assert_eq!(content(&steps.find(&key("a")).await.unwrap()), "new");
    assert_eq!(content(&place.open().find(&key("a")).await.unwrap()), "new");
}

#[tokio::test]
async fn a_damaged_step_is_not_found_and_can_be_made_again() {
    let place = Place::new();
    let steps = place.open();
    let made = make(&steps, &key("a"), "x").await;
    fs_err::remove_dir_all(&made.layers[0].directory).unwrap();
    assert!(steps.find(&key("a")).await.is_none());
    make(&steps, &key("a"), "y").await;
    assert_eq!(content(&steps.find(&key("a")).await.unwrap()), "y");
}

#[tokio::test]
async fn an_unfinished_step_leaves_nothing() {
    let place = Place::new();
    let steps = place.open();
    let draft = steps.begin(&key("a"));
    fs_err::create_dir_all(draft.path().join("0/deep")).unwrap();
    drop(place.open());
    assert_eq!(count(&place), 0, "at the next start");
    drop(draft);
    assert!(steps.find(&key("a")).await.is_none());
}

#[tokio::test]
async fn only_one_at_a_time_makes_a_step() {
    let place = Place::new();
    let steps = place.open();
    let first = steps.lock(&key("a")).await;
    let _other = steps.lock(&key("b")).await;
    let wait = tokio::time::timeout(Duration::from_millis(20), steps.lock(&key("a"))).await;
    assert!(wait.is_err());
    drop(first);
    steps.lock(&key("a")).await;
}

#[tokio::test]
async fn garbage_is_what_nobody_uses_and_nobody_asked_for_lately() {
    let place = Place::new();
    let steps = place.open();
    let kept = make(&steps, &key("kept"), "").await;
    let used = HashSet::from([kept.layers[0].directory.clone()]);
    drop(kept);
    let held = make(&steps, &key("held"), "").await;
    drop(make(&steps, &key("loose"), "").await);
    steps.collect(&used, Duration::from_mins(1)).unwrap();
    assert_eq!(count(&place), 3, "all of them are young");
    steps.collect(&used, Duration::ZERO).unwrap();
    assert_eq!(count(&place), 2);
    assert!(steps.find(&key("loose")).await.is_none());
    assert!(steps.find(&key("kept")).await.is_some());
    drop(held);
    steps.collect(&used, Duration::ZERO).unwrap();
    assert_eq!(count(&place), 1);
}

#[tokio::test]
async fn what_was_replaced_goes_at_once() {
    let place = Place::new();
    let steps = place.open();
    drop(make(&steps, &key("a"), "old").await);
    drop(make(&steps, &key("a"), "new").await);
    steps
        .collect(&HashSet::new(), Duration::from_mins(1))
        .unwrap();
    assert_eq!(count(&place), 1);
    assert_eq!(content(&steps.find(&key("a")).await.unwrap()), "new");
}
