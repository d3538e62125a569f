use std::os::unix::fs::symlink;

use super::*;

fn context(ignore: &str) -> (tempfile::TempDir, Context) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for path in [
        "package.json",
        "package-lock.json",
        "src/a.py",
        "src/lib/b.py",
        "src/lib/b.pyc",
        "docs/x.md",
        "node_modules/m/index.js",
    ] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    symlink("src/a.py", root.join("link")).unwrap();
    symlink("/etc/hostname", root.join("out")).unwrap();
    symlink("nowhere", root.join("src/dangling")).unwrap();
    let opened = Context::open(root, Ignore::parse(ignore)).unwrap();
    (folder, opened)
}

fn names(context: &Context, sources: &[&str], destination: &str) -> (String, Vec<String>) {
    let sources: Vec<String> = sources.iter().map(|&one| one.to_owned()).collect();
    let selection = context.select(&sources, 0, destination).unwrap();
    (selection.source, selection.files.into_keys().collect())
}

#[test]
fn a_file_and_a_folder_keep_their_path() {
    let (_folder, context) = context("");
    assert_eq!(
        names(&context, &["src/a.py"], "/x"),
        ("src/a.py".to_owned(), vec!["src/a.py".to_owned()])
    );
    let (source, files) = names(&context, &["src"], "/x");
    assert_eq!(source, "src");
    assert_eq!(
        files,
        [
            "src",
            "src/a.py",
            "src/dangling",
            "src/lib",
            "src/lib/b.py",
            "src/lib/b.pyc"
        ]
    );
}

#[test]
fn the_context_itself_is_a_dot() {
    let (_folder, context) = context("node_modules\n**/*.pyc\nout\ndocs\n");
    let (source, files) = names(&context, &["."], "/x");
    assert_eq!(source, ".");
    assert_eq!(
        files,
        [
            "link",
            "package-lock.json",
            "package.json",
            "src",
            "src/a.py",
            "src/dangling",
            "src/lib",
            "src/lib/b.py"
        ]
    );
}

#[test]
fn several_files_go_into_one_folder_and_folders_give_their_contents() {
    let (_folder, context) = context("");
    let (source, files) = names(&context, &["package*.json", "docs"], "/x/");
    assert_eq!(source, "package_.json docs");
    assert_eq!(
        files,
        [
            "package_.json docs",
            "package_.json docs/package-lock.json",
            "package_.json docs/package.json",
            "package_.json docs/x.md"
        ]
    );
}

#[test]
fn a_pattern_with_one_match_is_that_file() {
    let (_folder, context) = context("");
    assert_eq!(names(&context, &["src/*.py"], "/x.py").0, "src/a.py");
}

#[test]
fn several_files_need_a_folder() {
    let (_folder, context) = context("");
    let error = context
        .select(&["package*.json".to_owned()], 0, "/x")
        .unwrap_err();
    assert!(error.to_string().contains("need a folder"));
}

#[test]
fn exceptions_are_found_below_what_is_left_out() {
    let (_folder, context) = context("*\n!src/lib\n");
    let (_, files) = names(&context, &["."], "/x");
    assert_eq!(files, ["src/lib", "src/lib/b.py", "src/lib/b.pyc"]);
}

#[test]
fn a_source_that_is_a_link_means_its_target_but_never_outside() {
    let (_folder, context) = context("");
    let selection = context.select(&["link".to_owned()], 0, "/x").unwrap();
    assert!(selection.files["link"].ends_with("src/a.py"));
    let error = context.select(&["out".to_owned()], 0, "/x").unwrap_err();
    assert!(error.to_string().contains("leads out"));
}

#[test]
fn what_is_not_there_is_told_apart_from_what_is_left_out() {
    let (_folder, context) = context("docs");
    let message = |source: &str| {
        let error = context.select(&[source.to_owned()], 0, "/x/").unwrap_err();
        error.to_string()
    };
    assert!(message("docs").contains(".dockerignore"));
    assert!(message("nope").contains("there is no nope"));
    assert!(message("*.nope").contains("there is no *.nope"));
}
