//! The languages, and for each the tools that can run it, the best first.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::account::Account;
use crate::envd::Variables;

pub(super) struct Language {
    pub(super) name: &'static str,
    aliases: &'static [&'static str],
    pub(super) extension: &'static str,
    toolchains: &'static [Toolchain],
}

/// In commands `{source}` is the file, `{main}` its name without extension, `{files}` our own files.
pub(super) struct Toolchain {
    pub(super) name: &'static str,
    needs: &'static [&'static str],
    pub(super) compile: Option<&'static [&'static str]>,
    pub(super) run: &'static [&'static str],
}

const fn script(
    name: &'static str,
    needs: &'static [&'static str],
    run: &'static [&'static str],
) -> Toolchain {
    Toolchain {
        name,
        needs,
        compile: None,
        run,
    }
}

const fn compiled(
    name: &'static str,
    needs: &'static [&'static str],
    compile: &'static [&'static str],
    run: &'static [&'static str],
) -> Toolchain {
    Toolchain {
        name,
        needs,
        compile: Some(compile),
        run,
    }
}

const PROGRAM: &[&str] = &["./program"];

macro_rules! language {
    ($name:literal, [$($alias:literal),*], $extension:literal, $($toolchain:expr),+ $(,)?) => {
        Language {
            name: $name,
            aliases: &[$($alias),*],
            extension: $extension,
            toolchains: &[$($toolchain),+],
        }
    };
}

const LANGUAGES: &[Language] = &[
    language!(
        "bash",
        ["shell"],
        "sh",
        script("bash", &["bash"], &["bash", "{source}"])
    ),
    language!("sh", [], "sh", script("sh", &["sh"], &["sh", "{source}"])),
    language!(
        "python",
        ["py", "python3"],
        "py",
        script("python3", &["python3"], &["python3", "{source}"]),
        script("python", &["python"], &["python", "{source}"]),
    ),
    language!(
        "javascript",
        ["js", "node"],
        "js",
        script("node", &["node"], &["node", "{source}"]),
        script("bun", &["bun"], &["bun", "run", "{source}"]),
        script("deno", &["deno"], &["deno", "run", "-A", "{source}"]),
    ),
    language!(
        "typescript",
        ["ts"],
        "ts",
        script("bun", &["bun"], &["bun", "run", "{source}"]),
        script("deno", &["deno"], &["deno", "run", "-A", "{source}"]),
        script("tsx", &["tsx"], &["tsx", "{source}"]),
        compiled(
            "node",
            &["node", "{files}/javascript/strip.js"],
            &[
                "node",
                "{files}/javascript/strip.js",
                "{source}",
                "program.mjs"
            ],
            &["node", "./program.mjs"],
        ),
    ),
    language!(
        "c",
        [],
        "c",
        compiled(
            "gcc",
            &["gcc"],
            &["gcc", "-O1", "-o", "program", "{source}", "-lm"],
            PROGRAM
        ),
        compiled(
            "clang",
            &["clang"],
            &["clang", "-O1", "-o", "program", "{source}", "-lm"],
            PROGRAM
        ),
        compiled(
            "tcc",
            &["tcc"],
            &["tcc", "-o", "program", "{source}", "-lm"],
            PROGRAM
        ),
    ),
    language!(
        "cpp",
        ["c++", "cxx"],
        "cpp",
        compiled(
            "g++",
            &["g++"],
            &["g++", "-std=c++20", "-O1", "-o", "program", "{source}"],
            PROGRAM
        ),
        compiled(
            "clang++",
            &["clang++"],
            &["clang++", "-std=c++20", "-O1", "-o", "program", "{source}"],
            PROGRAM,
        ),
    ),
    language!(
        "rust",
        ["rs"],
        "rs",
        compiled(
            "rustc",
            &["rustc", "cc"],
            &[
                "rustc",
                "--edition",
                "2021",
                "-C",
                "opt-level=1",
                "-o",
                "program",
                "{source}"
            ],
            PROGRAM,
        ),
    ),
    language!(
        "go",
        ["golang"],
        "go",
        compiled(
            "go",
            &["go"],
            &["go", "build", "-o", "program", "{source}"],
            PROGRAM
        ),
        compiled(
            "gccgo",
            &["gccgo"],
            &["gccgo", "-o", "program", "{source}"],
            PROGRAM
        ),
    ),
    language!(
        "java",
        [],
        "java",
        compiled(
            "jdk",
            &["javac", "java"],
            &["javac", "-d", "classes", "{source}"],
            &["java", "-cp", "./classes", "{main}"]
        ),
    ),
    language!(
        "kotlin",
        ["kt"],
        "kt",
        compiled(
            "kotlinc",
            &["kotlinc", "java"],
            &[
                "kotlinc",
                "{source}",
                "-include-runtime",
                "-d",
                "program.jar"
            ],
            &["java", "-jar", "./program.jar"]
        ),
    ),
    language!(
        "scala",
        [],
        "scala",
        script("scala", &["scala"], &["scala", "{source}"])
    ),
    language!(
        "csharp",
        ["c#", "cs"],
        "cs",
        compiled(
            "mono",
            &["mcs", "mono"],
            &["mcs", "-out:program.exe", "{source}"],
            &["mono", "./program.exe"]
        ),
    ),
    language!(
        "ruby",
        ["rb"],
        "rb",
        script("ruby", &["ruby"], &["ruby", "{source}"])
    ),
    language!(
        "php",
        [],
        "php",
        script("php", &["php"], &["php", "{source}"])
    ),
    language!(
        "perl",
        ["pl"],
        "pl",
        script("perl", &["perl"], &["perl", "{source}"])
    ),
    language!(
        "lua",
        [],
        "lua",
        script("lua", &["lua"], &["lua", "{source}"]),
        script("lua5.4", &["lua5.4"], &["lua5.4", "{source}"]),
        script("luajit", &["luajit"], &["luajit", "{source}"]),
    ),
    language!(
        "r",
        [],
        "R",
        script("Rscript", &["Rscript"], &["Rscript", "{source}"])
    ),
    language!(
        "julia",
        ["jl"],
        "jl",
        script("julia", &["julia"], &["julia", "{source}"])
    ),
    language!(
        "haskell",
        ["hs"],
        "hs",
        compiled(
            "ghc",
            &["ghc"],
            &["ghc", "-v0", "-o", "program", "{source}"],
            PROGRAM
        ),
    ),
    language!(
        "ocaml",
        ["ml"],
        "ml",
        compiled(
            "ocamlfind",
            &["ocamlopt"],
            &["ocamlopt", "-o", "program", "{source}"],
            PROGRAM
        ),
        script("ocaml", &["ocaml"], &["ocaml", "{source}"]),
    ),
    language!(
        "elixir",
        ["exs"],
        "exs",
        script("elixir", &["elixir"], &["elixir", "{source}"])
    ),
    language!(
        "erlang",
        ["erl"],
        "erl",
        script("escript", &["escript"], &["escript", "{source}"])
    ),
    language!(
        "swift",
        [],
        "swift",
        compiled(
            "swiftc",
            &["swiftc"],
            &["swiftc", "-o", "program", "{source}"],
            PROGRAM
        ),
    ),
    language!(
        "zig",
        [],
        "zig",
        compiled(
            "zig",
            &["zig"],
            &["zig", "build-exe", "{source}", "-femit-bin=program"],
            PROGRAM
        ),
    ),
    language!(
        "nim",
        [],
        "nim",
        compiled(
            "nim",
            &["nim"],
            &["nim", "c", "--hints:off", "-o:program", "{source}"],
            PROGRAM
        ),
    ),
    language!(
        "d",
        [],
        "d",
        compiled(
            "dmd",
            &["dmd"],
            &["dmd", "-of=program", "{source}"],
            PROGRAM
        ),
        compiled(
            "ldc2",
            &["ldc2"],
            &["ldc2", "-of=program", "{source}"],
            PROGRAM
        ),
        compiled(
            "gdc",
            &["gdc"],
            &["gdc", "-o", "program", "{source}"],
            PROGRAM
        ),
    ),
    language!(
        "fortran",
        ["f90"],
        "f90",
        compiled(
            "gfortran",
            &["gfortran"],
            &["gfortran", "-o", "program", "{source}"],
            PROGRAM
        ),
    ),
    language!(
        "pascal",
        ["pas"],
        "pas",
        compiled(
            "fpc",
            &["fpc"],
            &["fpc", "-v0", "-oprogram", "{source}"],
            PROGRAM
        ),
    ),
    language!(
        "awk",
        [],
        "awk",
        script("awk", &["awk"], &["awk", "-f", "{source}"])
    ),
    language!(
        "tcl",
        [],
        "tcl",
        script("tclsh", &["tclsh"], &["tclsh", "{source}"])
    ),
    language!(
        "scheme",
        ["guile"],
        "scm",
        script(
            "guile",
            &["guile"],
            &["guile", "--no-auto-compile", "{source}"]
        )
    ),
    language!(
        "lisp",
        ["commonlisp"],
        "lisp",
        script("sbcl", &["sbcl"], &["sbcl", "--script", "{source}"])
    ),
    language!(
        "prolog",
        [],
        "pro",
        script(
            "swipl",
            &["swipl"],
            &["swipl", "-q", "-t", "halt", "{source}"]
        )
    ),
];

pub(super) fn find(name: &str) -> Option<&'static Language> {
    let name = name.trim().to_lowercase();
    LANGUAGES
        .iter()
        .find(|language| language.name == name || language.aliases.contains(&name.as_str()))
}

pub(super) fn installed(tools: &Tools) -> Vec<&'static str> {
    LANGUAGES
        .iter()
        .filter(|language| language.toolchain(tools).is_some())
        .map(|language| language.name)
        .collect()
}

impl Language {
    pub(super) fn toolchain(&self, tools: &Tools) -> Option<&'static Toolchain> {
        let toolchains: &'static [Toolchain] = self.toolchains;
        toolchains
            .iter()
            .find(|toolchain| toolchain.needs.iter().all(|need| tools.has(need)))
    }

    pub(super) fn wanted(&self) -> String {
        let names: Vec<&str> = self.toolchains.iter().map(|t| t.name).collect();
        names.join(", ")
    }
}

/// Where programs are looked for.
pub(super) struct Tools {
    folders: Vec<PathBuf>,
    files: PathBuf,
}

impl Tools {
    pub(super) fn new(files: &Path, account: &Account) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let usual = [
            "/usr/local/bin",
            "/usr/bin",
            "/bin",
            "/usr/local/go/bin",
            "/usr/local/cargo/bin",
        ];
        let at_home = [
            ".cargo/bin",
            ".local/bin",
            ".bun/bin",
            ".deno/bin",
            "go/bin",
        ];
        let more = usual
            .iter()
            .map(PathBuf::from)
            .chain(at_home.iter().map(|folder| account.home.join(folder)));
        for folder in more {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Self {
            folders,
            files: files.to_owned(),
        }
    }

    fn has(&self, need: &str) -> bool {
        if let Some(rest) = need.strip_prefix("{files}/") {
            return self.files.join(rest).is_file();
        }
        self.folders
            .iter()
            .any(|folder| folder.join(need).is_file())
    }

    /// What a program finds in its environment: the sandbox's variables, then its own.
    pub(super) fn environment(
        &self,
        account: &Account,
        globals: &Variables,
        own: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let path = std::env::join_paths(&self.folders)
            .ok()
            .and_then(|path| path.into_string().ok())
            .unwrap_or_default();
        let mut environment = BTreeMap::from([
            ("PATH".to_owned(), path),
            (
                "HOME".to_owned(),
                account.home.to_string_lossy().into_owned(),
            ),
            ("USER".to_owned(), account.name.clone()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            // What was printed before a time limit must not be lost in a buffer.
            ("PYTHONUNBUFFERED".to_owned(), "1".to_owned()),
        ]);
        for name in ["RUSTUP_HOME", "CARGO_HOME", "GOROOT", "JAVA_HOME", "TZ"] {
            if let Ok(value) = std::env::var(name) {
                environment.insert(name.to_owned(), value);
            }
        }
        let usable = |(name, value): &(&String, &String)| {
            !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
        };
        let given = globals.iter().chain(own).filter(usable);
        environment.extend(given.map(|(name, value)| (name.clone(), value.clone())));
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_or_alias_means_two_languages() {
        let mut names: Vec<&str> = LANGUAGES
            .iter()
            .flat_map(|language| language.aliases.iter().chain([&language.name]))
            .copied()
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn names_are_found_in_any_case_and_by_alias() {
        for (asked, name) in [("C++", "cpp"), (" Golang ", "go"), ("py", "python")] {
            assert_eq!(find(asked).unwrap().name, name);
        }
        assert!(find("cobol-85").is_none());
    }
}
