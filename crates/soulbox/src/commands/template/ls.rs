use anyhow::Result;
use jiff::Timestamp;
use soulbox_client::model::templates::Template;

use crate::{
    args::TemplateListArgs,
    output::{self, Columns, cell, state_cell, units},
};

pub(super) async fn run(args: &TemplateListArgs) -> Result<u8> {
    let (_, templates) = super::list(&args.server).await?;
    if args.json {
        output::json(&templates)?;
    } else if args.quiet {
        for template in &templates {
            output::text(&output::printable(template.name()))?;
        }
    } else {
        table(&templates, Timestamp::now()).print()?;
    }
    Ok(0)
}

fn table(templates: &[Template], now: Timestamp) -> Columns {
    let names = [
        "NAME", "TEMPLATE", "STATUS", "CPU", "MEMORY", "DISK", "UPDATED",
    ];
    let mut columns = Columns::new(&names);
    for template in templates {
        let size = |mib: u32| units::bytes(u64::from(mib) << 20);
        columns.row(vec![
            cell(template.name()),
            cell(&template.id),
            state_cell(super::status(template)),
            cell(template.cpu_count.to_string()),
            cell(size(template.memory_mb)),
            cell(template.disk_size_mb.map_or_else(|| "-".to_owned(), size)),
            cell(units::ago(&template.updated_at, now)),
        ]);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_called_by_its_name() {
        let template: Template = serde_json::from_value(serde_json::json!({
            "templateID": "t1", "buildID": "b", "names": ["team/web"], "aliases": ["web"],
            "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024, "buildStatus": "ready",
            "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z",
            "spawnCount": 7,
        }))
        .unwrap();
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let shown = table(std::slice::from_ref(&template), now).render();
        let words: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[..4], ["web", "t1", "ready", "2"]);
        assert!(template.is_called("team/web") && template.is_called("t1"));
        let unbuilt: Template = serde_json::from_value(serde_json::json!({
            "templateID": "t2", "buildID": "00000000-0000-0000-0000-000000000000",
            "names": ["agent"], "buildStatus": "waiting",
        }))
        .unwrap();
        let waiting = Template {
            build: "b".to_owned(),
            ..unbuilt.clone()
        };
        let shown = table(&[unbuilt, waiting], now).render();
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].contains("not built"), "{shown}");
        assert!(lines[2].contains("waiting"), "{shown}");
        // What we do not know is passed on.
        assert_eq!(serde_json::to_value(&template).unwrap()["spawnCount"], 7);
    }
}
