//! The languages: how each is recognised, compiled and run.

/// A language, and the toolchains that can run it, best first.
#[derive(Debug)]
pub struct Language {
    pub name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    /// Name of the file that holds the code.
    pub(crate) source: &'static str,
    pub(crate) toolchains: &'static [Toolchain],
}

/// Shell text each; the working directory holds the source.
#[derive(Debug)]
pub(crate) struct Toolchain {
    /// Succeeds where this toolchain is installed.
    pub(crate) probe: &'static str,
    pub(crate) compile: Option<&'static str>,
    /// The arguments of the program follow.
    pub(crate) run: &'static str,
}

impl Toolchain {
    /// Shell text that does something where this toolchain is installed.
    pub(crate) fn when(&self, then: &str) -> String {
        format!(
            "if {{ {}; }} >/dev/null 2>&1; then {then}; fi\n",
            self.probe
        )
    }
}

const fn script(probe: &'static str, run: &'static str) -> Toolchain {
    Toolchain {
        probe,
        compile: None,
        run,
    }
}

const fn compiled(probe: &'static str, compile: &'static str, run: &'static str) -> Toolchain {
    Toolchain {
        probe,
        compile: Some(compile),
        run,
    }
}

pub static LANGUAGES: &[Language] = &[
    Language {
        name: "python",
        aliases: &["python3", "py"],
        source: "main.py",
        toolchains: &[
            script("command -v python3", "python3 main.py"),
            script("command -v python", "python main.py"),
        ],
    },
    Language {
        name: "javascript",
        aliases: &["js", "node"],
        source: "main.mjs",
        toolchains: &[
            script("command -v node", "node main.mjs"),
            script("command -v bun", "bun run main.mjs"),
            script("command -v deno", "deno run -A main.mjs"),
        ],
    },
    Language {
        name: "typescript",
        aliases: &["ts"],
        source: "main.mts",
        toolchains: &[
            // Node takes types away itself since 22.6.
            script(
                "node --experimental-strip-types -e 0",
                "node --no-warnings --experimental-strip-types main.mts",
            ),
            script("command -v bun", "bun run main.mts"),
            script("command -v deno", "deno run -A main.mts"),
            script("command -v tsx", "tsx main.mts"),
            compiled(
                "command -v tsc && command -v node",
                "tsc --target es2022 --module nodenext --noEmitOnError main.mts",
                "node main.mjs",
            ),
            compiled(
                "command -v esbuild && command -v node",
                "esbuild --log-level=warning --outfile=main.mjs main.mts",
                "node main.mjs",
            ),
        ],
    },
    Language {
        name: "bash",
        aliases: &[],
        source: "main.bash",
        toolchains: &[script("command -v bash", "bash main.bash")],
    },
    Language {
        name: "sh",
        aliases: &["shell"],
        source: "main.sh",
        toolchains: &[script("command -v sh", "sh main.sh")],
    },
    Language {
        name: "c",
        aliases: &[],
        source: "main.c",
        toolchains: &[
            compiled("command -v cc", "cc -O2 -o main main.c -lm", "./main"),
            compiled("command -v gcc", "gcc -O2 -o main main.c -lm", "./main"),
            compiled("command -v clang", "clang -O2 -o main main.c -lm", "./main"),
            compiled("command -v tcc", "tcc -o main main.c -lm", "./main"),
        ],
    },
    Language {
        name: "cpp",
        aliases: &["c++", "cxx"],
        source: "main.cpp",
        toolchains: &[
            compiled("command -v c++", "c++ -O2 -o main main.cpp", "./main"),
            compiled("command -v g++", "g++ -O2 -o main main.cpp", "./main"),
            compiled(
                "command -v clang++",
                "clang++ -O2 -o main main.cpp",
                "./main",
            ),
        ],
    },
    Language {
        name: "rust",
        aliases: &["rs"],
        source: "main.rs",
        toolchains: &[compiled(
            "command -v rustc",
            "rustc --edition 2021 -O -o main main.rs",
            "./main",
        )],
    },
    Language {
        name: "go",
        aliases: &["golang"],
        source: "main.go",
        toolchains: &[compiled(
            "command -v go",
            "GOFLAGS=-mod=mod GOCACHE=\"$PWD/.cache\" go build -o main main.go",
            "./main",
        )],
    },
    Language {
        name: "java",
        aliases: &[],
        source: "Main.java",
        toolchains: &[compiled(
            "command -v javac && command -v java",
            "javac -d classes Main.java",
            "java -cp classes Main",
        )],
    },
    Language {
        name: "kotlin",
        aliases: &["kt"],
        source: "main.kt",
        toolchains: &[compiled(
            "command -v kotlinc && command -v java",
            "kotlinc main.kt -include-runtime -d main.jar",
            "java -jar main.jar",
        )],
    },
    Language {
        name: "csharp",
        aliases: &["cs", "c#"],
        source: "main.cs",
        toolchains: &[compiled(
            "command -v mcs && command -v mono",
            "mcs -out:main.exe main.cs",
            "mono main.exe",
        )],
    },
    Language {
        name: "ruby",
        aliases: &["rb"],
        source: "main.rb",
        toolchains: &[script("command -v ruby", "ruby main.rb")],
    },
    Language {
        name: "php",
        aliases: &[],
        source: "main.php",
        toolchains: &[script("command -v php", "php main.php")],
    },
    Language {
        name: "perl",
        aliases: &["pl"],
        source: "main.pl",
        toolchains: &[script("command -v perl", "perl main.pl")],
    },
    Language {
        name: "lua",
        aliases: &[],
        source: "main.lua",
        toolchains: &[
            script("command -v lua", "lua main.lua"),
            script("command -v lua5.4", "lua5.4 main.lua"),
            script("command -v luajit", "luajit main.lua"),
        ],
    },
    Language {
        name: "r",
        aliases: &[],
        source: "main.R",
        toolchains: &[script("command -v Rscript", "Rscript --vanilla main.R")],
    },
    Language {
        name: "haskell",
        aliases: &["hs"],
        source: "main.hs",
        toolchains: &[compiled(
            "command -v ghc",
            "ghc -O -v0 -o main main.hs",
            "./main",
        )],
    },
    Language {
        name: "elixir",
        aliases: &["exs"],
        source: "main.exs",
        toolchains: &[script("command -v elixir", "elixir main.exs")],
    },
    Language {
        name: "awk",
        aliases: &[],
        source: "main.awk",
        toolchains: &[script("command -v awk", "awk -f main.awk --")],
    },
];

/// By name or alias, whatever the case.
pub fn find(name: &str) -> Option<&'static Language> {
    let name = name.trim().to_lowercase();
    LANGUAGES
        .iter()
        .find(|language| language.name == name || language.aliases.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_alias_means_one_language() {
        let names = LANGUAGES
            .iter()
            .flat_map(|language| language.aliases.iter().chain([&language.name]));
        let mut seen = std::collections::HashSet::new();
        for name in names {
            assert!(seen.insert(name), "{name} twice");
        }
    }

    #[test]
    fn languages_are_found_as_people_write_them() {
        assert_eq!(find(" C++ ").unwrap().name, "cpp");
        assert_eq!(find("JS").unwrap().name, "javascript");
        assert!(find("brainfuck").is_none());
    }
}
