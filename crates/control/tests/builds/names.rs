//! Names that are shared, and templates that are published.

use super::*;

#[tokio::test]
async fn templates_and_snapshots_share_their_names() {
    let world = world().await;
    world.build("app").await;
    let made = world.create("app").await.unwrap();
    let (control, tenant) = (&world.control, &world.tenant);
    let taken = control
        .create_snapshot(tenant, &made.id, Some("app:v2"))
        .await;
    assert!(matches!(taken, Err(Error::NameTaken { .. })), "{taken:?}");
    control
        .create_snapshot(tenant, &made.id, Some("snap"))
        .await
        .unwrap();
    let built = control.request_build(tenant, ask("snap")).await;
    assert!(matches!(built, Err(Error::NameTaken { .. })), "{built:?}");
    let id = control.request_build(tenant, ask(BASE)).await;
    assert!(matches!(id, Err(Error::NameTaken { .. })), "{id:?}");
    let asked = world.ask("another").await;
    let snapshot = BaseDefinition::Template("snap".into());
    world.start(&asked, request(snapshot, vec![])).await;
    let reason = world.ended(&asked).await.reason.unwrap();
    assert!(reason.message.contains("is a snapshot"), "{reason:?}");
}

#[tokio::test]
async fn a_published_template_is_used_by_others_and_changed_by_nobody_else() {
    let world = world().await;
    let asked = world.build("app").await;
    let control = &world.control;
    let (other, _) = control.create_tenant("other").await.unwrap();
    let create_as = async |name: &str| control.create_sandbox(&other, create(name)).await;
    for name in ["default/app", asked.template.as_str()] {
        let made = create_as(name).await;
        assert!(matches!(made, Err(Error::TemplateOfAnother(_))), "{made:?}");
    }
    let publish = async |tenant: &Tenant, how| {
        let name = reference(asked.template.as_str());
        control.publish_template(tenant, &name, how).await
    };
    let shown = publish(&world.tenant, Some(Published::InNamespace)).await;
    assert_eq!(shown.unwrap().names, ["default/app"]);
    for name in ["default/app", asked.template.as_str()] {
        let made = create_as(name).await.unwrap();
        assert_eq!(world.build_of(&made.id).as_ref(), Some(&asked.build));
    }
    assert!(matches!(
        create_as("app").await,
        Err(Error::TemplateNotFound(_))
    ));
    let stolen = publish(&other, None).await;
    assert!(matches!(stolen, Err(Error::TemplateOfAnother(_))));
    let stolen = control
        .delete_template(&other, &reference("default/app"))
        .await;
    assert!(matches!(stolen, Err(Error::TemplateOfAnother(_))));
    let shown = publish(&world.tenant, Some(Published::Everywhere)).await;
    assert_eq!(shown.unwrap().names, ["default/app", "app"]);
    create_as("app").await.unwrap();

    let used = control
        .delete_template(&world.tenant, &reference("app"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        used.contains("sandbox of another team and 2 more"),
        "{used}"
    );

    let theirs = control.request_build(&other, ask("app")).await.unwrap();
    let claim = control
        .publish_template(&other, &reference("app"), Some(Published::Everywhere))
        .await;
    assert!(matches!(claim, Err(Error::NameTaken { .. })), "{claim:?}");
    assert_ne!(theirs.template, asked.template);
    publish(&world.tenant, None).await.unwrap();
    assert!(matches!(
        create_as("default/app").await,
        Err(Error::TemplateOfAnother(_))
    ));
}
