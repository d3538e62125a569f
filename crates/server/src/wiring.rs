//! The one place where machine, tiers, node, store, control and api meet.

mod admission;
mod opened;
mod stop;

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use soulbox_api::ApiConfig;
use soulbox_build::{Builder, BuilderConfig};
use soulbox_control::{
    BuildConfig, Control, ControlConfig, SERVER_TENANT, TemplateInfo, WebhookConfig,
    volume::Volumes,
};
use soulbox_guest_programs::Programs;
use soulbox_image::{ImageConfig, ImageStore};
use soulbox_jail::Jail;
use soulbox_machine::{Machine, MachineConfig};
use soulbox_node::{LocalNode, NodeConfig, PoolConfig};
use soulbox_runtime::{Node, Runtimes};
use soulbox_store::Store;
use soulbox_template::{Template, Templates};
use soulbox_types::{Secret, Tier};

pub(crate) use stop::{Startup, Stopped, check_stop};

use self::opened::Opened;
use crate::{
    Config,
    backup::{LiveSource, Operator},
    builtins::{self, BuiltIns},
    connections::ConnectionLimits,
    health,
    metrics::{Busy, Operations, Slots, SlotsNow},
    running::Parts,
    sampled::Sampler,
    trial,
};

/// Sparse: only what is written takes space.
const VOLUME_LIMIT_MIB: u32 = 10 * 1024;

/// `sandbox_domain`: reported to clients that did not connect by name, with its port.
/// Besides the parts, returns an API key in clear: the first one, if it was created just now, or
/// `known_key`, if that is (still) valid. After a failure nothing is left on the machine: each step
/// is completed, since half of it could not be undone.
pub(crate) async fn assemble(
    config: &Config,
    sandbox_domain: String,
    seed: Secret,
    known_key: Option<Secret>,
    startup: Startup<'_>,
) -> anyhow::Result<(Parts, Option<Secret>)> {
    let stop = startup.stop;
    startup
        .status("making the template `base` of this machine")
        .await;
    let (programs, template) = prepare(config).await?;
    check_stop(stop)?;
    let volumes = open_volumes(config).await?;
    let templates = open_templates(config).await?;
    templates.set_own(template.clone());
    check_stop(stop)?;
    let machine = open_machine(config, programs.clone(), &templates).await?;
    let base = Base {
        programs,
        template,
        templates,
    };
    let mut opened = Opened::new(Arc::clone(&machine), volumes);
    let (node, control) = match open_rest(config, base, seed, &mut opened, startup).await {
        Ok(rest) => rest,
        Err(error) => {
            opened.close().await;
            return Err(error);
        }
    };
    let key = match control.ensure_default_tenant().await {
        Ok(Some(first)) => Some(first.key),
        Ok(None) => known_key.filter(|key| control.authenticate(key.expose()).is_ok()),
        Err(error) => {
            opened.close().await;
            return Err(error.into());
        }
    };
    let operator = match listen_to_the_operator(config, &opened) {
        Ok(operator) => operator,
        Err(error) => {
            opened.close().await;
            return Err(error);
        }
    };
    let domain = sandbox_domain;
    let waker = control.waker();
    let (watched, stopping) = (Arc::clone(&node), Arc::clone(&node));
    let sampler = Sampler::default();
    let sampling = sampler
        .clone()
        .run(Arc::clone(&machine), config.data_dir.clone());
    let (operated, builds) = (Arc::clone(&node), Arc::clone(&control));
    let ready = opened
        .store
        .clone()
        .map(|store| health::checks(store, Arc::clone(&node)));
    let api = soulbox_api::router(control, ApiConfig { domain });
    let parts = Parts {
        node,
        api,
        waker: Some(waker),
        busy: Some(Arc::new(move || Busy {
            pool: watched.pool_stats(),
            admission: watched.admission_stats(),
            evictions: watched.evictions(),
            oom_kills: watched.oom_kills(),
        })),
        slots: Some(slots(machine)),
        operations: Some(Arc::new(move || Operations {
            node: operated.node_stats(),
            builds: builds.build_stats(),
            snapshots: operated.snapshots().len() as u64,
            sampled: sampler.latest(),
        })),
        sampling: Some(Box::pin(sampling)),
        ready,
        operator,
        limits: ConnectionLimits::of_this_process(),
        stop: Box::new(move || stopping.close_admission()),
        close: Box::pin(opened.close()),
    };
    Ok((parts, key))
}

/// `None` where a part of the server is not there.
fn listen_to_the_operator(
    config: &Config,
    opened: &Opened,
) -> anyhow::Result<Option<(Operator, LiveSource)>> {
    let (Some(node), Some(store), Some(builder)) = (&opened.node, &opened.store, &opened.builder)
    else {
        return Ok(None);
    };
    let source = LiveSource {
        data_dir: config.data_dir.clone(),
        node: Arc::clone(node),
        store: store.clone(),
        volumes: Arc::clone(&opened.volumes),
        builder: Arc::clone(builder),
    };
    let operator = Operator::bind(&config.data_dir)
        .context("could not make the operator's socket in the data folder")?;
    Ok(Some((operator, source)))
}

/// What sandboxes are made of.
struct Base {
    programs: Programs,
    template: Template,
    templates: Arc<Templates>,
}

async fn open_rest(
    config: &Config,
    base: Base,
    seed: Secret,
    opened: &mut Opened,
    startup: Startup<'_>,
) -> anyhow::Result<(Arc<LocalNode>, Arc<Control>)> {
    let stop = startup.stop;
    let Base {
        programs,
        template,
        templates,
    } = base;
    check_stop(stop)?;
    let admission = admission::prepare(config, &opened.machine).await?;
    startup.status("trying to start a sandbox").await;
    let jail =
        Jail::open(Arc::clone(&opened.machine)).context("could not prepare the jail tier")?;
    trial::before_ready(&opened.machine, &*jail, &template, &config.data_dir, stop).await?;
    check_stop(stop)?;
    startup.status("taking up the sandboxes").await;
    let node = LocalNode::open(
        NodeConfig {
            sandboxes_dir: sandboxes_dir(config),
            snapshots_dir: config.data_dir.join("snapshots"),
            ends_dir: config.data_dir.join("ends"),
            quarantine_dir: quarantine_dir(config),
            volumes_dir: config.data_dir.join("volumes"),
            max_sandboxes: usize::try_from(config.max_sandboxes).unwrap_or(usize::MAX),
            min_free_disk: config.min_free_disk,
            templates: Arc::clone(&templates),
            ready_limit: NodeConfig::READY_LIMIT,
            pool: PoolConfig::up_to(config.warm),
            admission,
        },
        runtimes(jail),
    )
    .await
    .context("could not take up the sandboxes")?;
    opened.node = Some(Arc::clone(&node));
    check_stop(stop)?;
    prune_layers(config, &templates).await;

    let base = Arc::new(template.clone());
    let (builds, builder) = build_config(config, &programs, &base, templates, &node).await?;
    opened.builder = Some(builder);
    let store = Store::open(&config.data_dir.join(crate::keys::DATABASE))
        .await
        .context("could not open the database")?;
    opened.store = Some(store.clone());
    check_stop(stop)?;
    let control = Control::open(
        ControlConfig {
            seed,
            max_timeout: config.max_timeout,
            default_tier: Tier::default(),
            default_limits: config.limits,
            max_sandboxes_per_tenant: config.max_sandboxes,
            templates: vec![TemplateInfo {
                id: template.id.clone(),
                build_id: template.build_id.clone(),
                aliases: template.aliases.clone(),
                limits: template.limits,
                created_at: template.created_at,
                public: true,
            }],
            volumes: Some(Arc::clone(&opened.volumes)),
            volume_limit_mib: VOLUME_LIMIT_MIB,
            webhooks: WebhookConfig {
                allow_private: config.webhook_allow_private,
                ..WebhookConfig::default()
            },
            builds: Some(builds),
        },
        store,
        Arc::clone(&node) as Arc<dyn Node>,
    )
    .await
    .context("could not start the control plane")?;
    opened.control = Some(Arc::clone(&control));
    builtins::prebuild(&control, &config.prebuild).await?;
    Ok((node, control))
}

/// How templates are built, including the built-in ones.
async fn build_config(
    config: &Config,
    programs: &Programs,
    base: &Arc<Template>,
    templates: Arc<Templates>,
    node: &Arc<LocalNode>,
) -> anyhow::Result<(BuildConfig, Arc<Builder>)> {
    let mirrors = config.registry_mirrors.iter();
    let images = ImageConfig {
        mirrors: mirrors
            .map(|mirror| (mirror.registry.clone(), mirror.url.clone()))
            .collect(),
        allow: config.registry_allow.clone(),
        min_free_disk: config.min_free_disk,
        extra_ca: authorities(base),
        ..ImageConfig::default()
    };
    let builder = BuilderConfig {
        ca_bundle: authorities(base),
        lasting_files_of: Some(SERVER_TENANT.parse()?),
        min_free_disk: config.min_free_disk,
        ..BuilderConfig::new(config.data_dir.join("templates"), programs.sudo.clone())
    };
    let (folder, node) = (config.data_dir.join("images"), Arc::clone(node));
    let (known, programs, limits) = (Arc::clone(&templates), programs.clone(), config.limits);
    let (definitions, host) = (config.definitions.clone(), Arc::clone(base));
    let (builder, builtins) = tokio::task::spawn_blocking(move || {
        let images = ImageStore::open(folder, images).context("could not open the images")?;
        let builder = Builder::open(builder, node, known, Arc::new(images))
            .context("could not open the templates' folder")?;
        let builtins = BuiltIns::load(&programs, limits, definitions.as_deref(), &host)
            .context("could not read the built-in templates")?;
        anyhow::Ok((builder, builtins))
    })
    .await??;
    let tenant = SERVER_TENANT.parse()?;
    builtins.hand_over(&builder, &tenant).await?;
    let logs = config.data_dir.join("templates/logs");
    let builder = Arc::new(builder);
    let builds = BuildConfig {
        parallel: config.parallel_builds,
        patience: config.build_wait,
        builtins: builtins.definitions,
        ..BuildConfig::new(Arc::clone(&builder) as _, templates, logs)
    };
    Ok((builds, builder))
}

/// What sandboxes trust, when the host has more than its distribution ships.
fn authorities(base: &Template) -> Option<PathBuf> {
    let bundle = base.env.get("SSL_CERT_FILE")?.trim_start_matches('/');
    let layers = base.overlays.iter().flat_map(|overlay| &overlay.lower);
    layers
        .map(|layer| layer.join(bundle))
        .find(|path| path.is_file())
}

/// What was built on this machine.
async fn open_templates(config: &Config) -> anyhow::Result<Arc<Templates>> {
    let folder = config.data_dir.join("templates/builds");
    let templates = tokio::task::spawn_blocking(move || Templates::open(folder))
        .await?
        .context("could not read the templates")?;
    Ok(Arc::new(templates))
}

async fn open_volumes(config: &Config) -> anyhow::Result<Arc<Volumes>> {
    let folder = config.data_dir.join("volumes");
    let min_free = config.min_free_disk;
    tokio::task::spawn_blocking(move || Volumes::open_above(folder, min_free))
        .await?
        .context("could not open the volumes")
}

pub(crate) fn sandboxes_dir(config: &Config) -> std::path::PathBuf {
    config.data_dir.join("sandboxes")
}

fn quarantine_dir(config: &Config) -> std::path::PathBuf {
    config.data_dir.join("quarantine")
}

fn layers_dir(config: &Config) -> std::path::PathBuf {
    config.data_dir.join("templates/base")
}

/// The guest programs and the template `base`, made of this machine.
async fn prepare(config: &Config) -> anyhow::Result<(Programs, Template)> {
    let bin = config.data_dir.join("bin");
    let layers = layers_dir(config);
    let (include_opt, extra_ca) = (config.include_opt, config.extra_ca.clone());
    let limits = config.limits;
    tokio::task::spawn_blocking(move || {
        let programs = soulbox_guest_programs::install(&bin)
            .context("could not install the guest programs")?;
        let options = soulbox_host_template::HostOptions {
            include_opt,
            sudo: programs.sudo.clone(),
            extra_ca,
        };
        let mut template = soulbox_host_template::prepare_host(&layers, &options)
            .context("could not make the template `base` from this machine")?;
        template.limits = limits;
        Ok((programs, template))
    })
    .await?
}

/// Every tier is there or refused with its reason.
fn runtimes(jail: Arc<Jail>) -> Runtimes {
    const LATER: &str = "it is not built yet; docs/architecture.md says what is planned";
    Runtimes::default()
        .with(jail)
        .without(Tier::Docker, LATER)
        .without(Tier::Gvisor, LATER)
        .without(Tier::Microvm, LATER)
}

async fn open_machine(
    config: &Config,
    programs: Programs,
    templates: &Templates,
) -> anyhow::Result<Arc<Machine>> {
    let sizes = templates.all().into_iter();
    let opened = Machine::open(MachineConfig {
        data_dir: config.data_dir.clone(),
        sandboxes_dir: sandboxes_dir(config),
        volumes_dir: config.data_dir.join("volumes"),
        programs,
        network_range: config.network_range,
        open_ranges: config.open_ranges.clone(),
        pool: config.pool,
        max_sandboxes: config.max_sandboxes,
        disk_sizes: sizes.map(|template| template.limits.disk_mib).collect(),
    })
    .await;
    let machine = match opened {
        Ok(machine) => machine,
        Err(error) => return Err(trial::explain(&error, &config.data_dir).await),
    };
    for warning in machine.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(machine)
}

/// Removes layers of older builds when no sandbox can be using them.
async fn prune_layers(config: &Config, templates: &Templates) {
    let users = [sandboxes_dir(config), quarantine_dir(config)];
    let layers = layers_dir(config);
    // Templates built on `base` need its layers as of then.
    let keep: Vec<PathBuf> = templates
        .all()
        .iter()
        .flat_map(|template| &template.overlays)
        .flat_map(|overlay| overlay.lower.clone())
        .collect();
    let pruned = tokio::task::spawn_blocking(move || {
        let is_empty = |folder: &PathBuf| {
            std::fs::read_dir(folder).is_ok_and(|mut each| each.next().is_none())
        };
        if users.iter().all(is_empty) {
            soulbox_host_template::prune(&layers, &keep)
        } else {
            Ok(Vec::new())
        }
    });
    match pruned.await {
        Ok(Ok(removed)) if removed.is_empty() => {}
        Ok(Ok(removed)) => {
            tracing::info!(layers = removed.len(), "removed layers of older templates");
        }
        Ok(Err(error)) => tracing::warn!(%error, "could not remove layers of older templates"),
        Err(error) => tracing::warn!(%error, "could not remove layers of older templates"),
    }
}

fn slots(machine: Arc<Machine>) -> SlotsNow {
    Arc::new(move || {
        let stats = machine.network_stats();
        Slots {
            ready: stats.pool as u64,
            used: stats.used as u64,
            names: machine.name_stats(),
            by_name: machine.by_name_stats(),
        }
    })
}
