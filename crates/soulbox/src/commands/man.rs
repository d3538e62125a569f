use anyhow::{Context, Result};

use crate::{args::ManArgs, install::man_pages, output};

pub(super) fn run(args: &ManArgs) -> Result<u8> {
    let folder = &args.folder;
    let cannot = || format!("could not write to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    let pages = man_pages()?;
    for (name, page) in &pages {
        std::fs::write(folder.join(name), page).with_context(cannot)?;
    }
    output::text(&format!("{} pages in {}", pages.len(), folder.display()))?;
    Ok(0)
}
