//! What a sandbox changed, as layers of a template.

use super::*;

/// Every fact about a tree that a layer has to carry.
const DESCRIBE: &str = r#"
    cd /data
    find . ! -type d -printf '%P %y %m %U:%G %s %T@ %n %l\0' | sort -z | tr '\0\n' '\n?'
    find . -type d -printf '%P %y %m %U:%G %T@\0' | sort -z | tr '\0\n' '\n?'
    find . -type f -size -1000k -print0 | sort -z | xargs -0 md5sum | tr -d '\\\\'
    find /usr/share/moved /usr/made | sort
    /usr/sbin/getcap caps 2>/dev/null || true
    python3 -c 'import os; print(os.getxattr("noted", "user.note"))' || true
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sandbox_changed_becomes_a_layer_that_shows_the_same() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let below = fixture.path().join("layer/data");
    for folder in ["emptied/deep", "moved/in", "renamed"] {
        fs::create_dir_all(below.join(folder)).unwrap();
    }
    for file in [
        "kept",
        "gone",
        "changed",
        "emptied/a",
        "moved/in/b",
        "renamed/c",
    ] {
        fs::write(below.join(file), "from the template").unwrap();
    }
    let mut jail = fixture.jail().await;
    let first = fixture.spec();
    create(&jail, &first).await;
    let script = r#"
        cd /data
        rm gone; echo more >> changed
        rm -r emptied; mkdir emptied; echo new > emptied/z
        mv moved elsewhere; echo x >> elsewhere/in/b; mkdir moved
        mv renamed renamed2; mv renamed2 renamed3
        mkdir own; echo o > own/file; chown -R 1000:1000 own; chmod 2750 own
        cp /bin/true setuid; chmod 4755 setuid
        echo l > one; ln one two; ln one own/three
        ln -s /nowhere link; chown -h 1000:7 link; mkfifo -m 620 pipe
        truncate -s 1G sparse; echo end >> sparse
        printf n > "$(printf 'new\nline "q" \\ \377')"
        touch -d '2001-02-03 04:05:06.789' kept link
        cp /bin/true caps; /usr/sbin/setcap cap_net_bind_service+ep caps 2>/dev/null || true
        echo n > noted; python3 -c 'import os; os.setxattr("noted", "user.note", b"hello")' || true
        mkdir -p /usr/share/moved_from/a; mv /usr/share/moved_from /usr/share/moved
        echo u > /usr/made; rm -r /usr/share/doc
    "#;
    run(&jail, &first, script).await;
    let seen = run(&jail, &first, DESCRIBE).await;
    let target = fixture.path().join("exported");
    let layers = jail.export(&first.id, &target).await.unwrap();
    assert_eq!(layers.len(), 2);
    jail.destroy(&first.id, None).await.unwrap();
    let upper: Vec<_> = fs::read_dir(&target).unwrap().collect();
    assert_eq!(upper.len(), 2, "{upper:?}");
    let sparse = fs::metadata(layers[0].directory.join("data/sparse")).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&sparse) < 100);

    for layer in &layers {
        let overlays = &mut fixture.template.overlays;
        let overlay = overlays.iter_mut().find(|o| o.target == layer.target);
        overlay.unwrap().lower.insert(0, layer.directory.clone());
    }
    jail.template = fixture.template.clone();
    let second = fixture.spec();
    create(&jail, &second).await;
    assert_eq!(run(&jail, &second, DESCRIBE).await, seen);
    for fact in [
        "elsewhere/in/b f",
        "renamed3/c f",
        "setuid f 4755 0:0",
        "own/three f",
    ] {
        assert!(seen.contains(fact), "{fact}: {seen}");
    }
    run(
        &jail,
        &second,
        "cd /data; test ! -e gone -a ! -e emptied/a -a ! -e /usr/share/doc",
    )
    .await;
    jail.destroy(&second.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_is_no_layer_leaves_nothing_behind() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    let script = "cd /root; i=0; while [ $i -lt 400 ]; do mkdir d; cd d; i=$((i+1)); done";
    run(&jail, &spec, script).await;
    let target = fixture.path().join("exported");
    let error = jail.export(&spec.id, &target).await.unwrap_err();
    let said = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(said.contains("deeper than 256"), "{said}");
    assert!(!target.exists());
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}
