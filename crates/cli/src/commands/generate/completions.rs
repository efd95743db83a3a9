//! Completions for shells. clap generates them from the definitions, and this module adds what clap
//! does not know: mount options, versions and the other names of the command.

use clap_complete::Shell;

use super::visible;
use crate::args::LINKED_NAMES;
use crate::failure::Failure;
use crate::output;

/// Follows clap's script for bash. It asks `dendro complete` for words after `-o` and for words
/// that contain an @ or a colon. It completes the other names of the command like the commands that
/// they stand for. bash inserts a completion after the last character that breaks words, so the
/// script removes the part before it. clap's script sees only what follows that character, so it is
/// not called where there are no candidates: it would offer the command's options.
const BASH: &str = r#"
_dendro_ask() {
    local line=${COMP_LINE:0:COMP_POINT} word previous shown
    local -a all
    read -ra all <<< "$COMP_LINE"
    word=${line##*[[:space:]]}
    line=${line%"$word"}
    line=${line%"${line##*[![:space:]]}"}
    previous=${line##*[[:space:]]}
    case $previous in
        -o|--options)
            compopt -o nospace +o bashdefault +o default 2> /dev/null
            mapfile -t COMPREPLY < <(dendro complete options -- "$word" "${all[@]/#\~\//$HOME/}" \
                2> /dev/null) ;;
        *)
            # Mount options follow the target of dendro set.
            if [[ $line =~ ^dendro[[:space:]]+set[[:space:]]+[^-] && $word != -* ]]; then
                compopt -o nospace +o bashdefault +o default 2> /dev/null
                mapfile -t COMPREPLY < <(dendro complete settings -- "$word" 2> /dev/null)
            else case $word in
                -*|*[\'\"\\]*) return 1 ;;
                *[@:]*) mapfile -t COMPREPLY < <(dendro complete versions -- "$word" 2> /dev/null) ;;
                *) return 1 ;;
            esac; fi ;;
    esac
    shown=${word##*[$COMP_WORDBREAKS]}
    local begun=${word%"$shown"}
    # An @ breaks words too, but bash replaces it with the word after it.
    begun=${begun%@}
    COMPREPLY=("${COMPREPLY[@]#"$begun"}")
}

_dendro_or_asked() {
    _dendro_ask || _dendro "$@"
}

_dendro_linked() {
    local verb
    case ${1##*/} in
@CASES@    esac
    _dendro_ask && return
    # Complete as if the user had typed the command and the verb.
    COMP_WORDS=(dendro "$verb" "${COMP_WORDS[@]:1}")
    COMP_CWORD=$((COMP_CWORD + 1))
    _dendro dendro "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
}

complete -F _dendro_or_asked -o bashdefault -o default dendro
complete -F _dendro_linked -o bashdefault -o default @NAMES@
"#;

/// Precedes the function in clap's script for zsh. It defines the functions that [`with_targets`]
/// puts where clap has a default.
const ZSH: &str = r#"
_dendro_options() {
    local -a all
    local -a line=("${(@Q)words/#\~\//$HOME/}")
    all=(${(f)"$(dendro complete options -- "$PREFIX" "${(@)line}" 2> /dev/null)"})
    compadd -S '' -- $all
}

_dendro_settings() {
    local -a all
    all=(${(f)"$(dendro complete settings -- "$PREFIX" 2> /dev/null)"})
    compadd -S '' -- $all
}

_dendro_targets() {
    if [[ $PREFIX == *[@:]* ]]; then
        local -a all
        all=(${(f)"$(dendro complete versions -- "$PREFIX" 2> /dev/null)"})
        compadd -- $all
    else
        _files
    fi
}

# Each other name of the command implies a verb.
_dendro() {
    local verb
    case $service in
@CASES@        *) _dendro_written_out "$@"; return ;;
    esac
    words=(dendro $verb "${(@)words[2,-1]}")
    (( CURRENT++ ))
    _dendro_written_out "$@"
}
"#;

/// Prints the completions of `shell`.
pub(crate) fn print(shell: Shell) -> Result<(), Failure> {
    output::print(&script(shell))
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(&visible()), "dendro", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + &filled(BASH),
        Shell::Zsh => with_targets(&script),
        _ => script,
    }
}

/// `command` without its hidden arguments. clap leaves hidden arguments in the scripts.
fn offered(command: &clap::Command) -> clap::Command {
    let mut offered = clap::Command::new(command.get_name().to_owned())
        .disable_help_subcommand(true)
        .disable_version_flag(command.is_disable_version_flag_set());
    if let Some(version) = command.get_version() {
        offered = offered.version(version.to_owned());
    }
    if let Some(about) = command.get_about() {
        offered = offered.about(about.clone());
    }
    let arguments = command.get_arguments().filter(|of| !of.is_hide_set()).cloned();
    offered.args(arguments).subcommands(command.get_subcommands().map(self::offered))
}

/// Inserts the other names of the command into `text`.
fn filled(text: &str) -> String {
    let cases: String = LINKED_NAMES
        .iter()
        .map(|(name, verb)| format!("        {name}) verb={verb} ;;\n"))
        .collect();
    text.replace("@CASES@", &cases).replace("@NAMES@", &names())
}

fn names() -> String {
    LINKED_NAMES.map(|(name, _)| name).join(" ")
}

/// zsh's script, with functions of our own in place of clap's default for targets and options.
fn with_targets(script: &str) -> String {
    let line = |line: &str| {
        let is_options = line.contains(":OPTIONS:_default");
        let mut names = ["target -- ", "tree -- ", "forks -- "].iter();
        let is_target = line.contains(":_default") && names.any(|name| line.contains(name));
        let is_settings = line.starts_with("'*::options -- ");
        match (is_options, is_target) {
            _ if is_settings => line.replace(":_default", ":_dendro_settings"),
            (true, _) => line.replace(":OPTIONS:_default", ":OPTIONS:_dendro_options"),
            (_, true) => line.replace(":_default", ":_dendro_targets"),
            _ => line.to_owned(),
        }
    };
    let script: String = script.lines().map(|text| line(text) + "\n").collect();
    let head = format!("#compdef dendro {}", names());
    // Our function precedes clap's, and the last lines of the file call it.
    script
        .replacen("#compdef dendro", &head, 1)
        .replacen("\n_dendro() {", &format!("\n{}\n_dendro_written_out() {{", filled(ZSH)), 1)
        .replace("compdef _dendro dendro", &format!("compdef _dendro dendro {}", names()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn hidden_commands_are_not_offered() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert!(script.contains("segments"), "{shell}");
            for hidden in Cli::command().get_subcommands().filter(|of| of.is_hide_set()) {
                let name = hidden.get_name();
                // Each shell's way to name a command: a word of a list, or what it is about.
                let about = hidden.get_about().unwrap().to_string();
                assert!(!script.contains(&format!("subcmd__{name}")), "{shell} offers {name}");
                assert!(!script.contains(&about), "{shell} offers {name}");
            }
        }
    }

    #[test]
    fn hidden_arguments_are_not_offered() {
        let cli = Cli::command();
        let check = cli.find_subcommand("check").unwrap();
        let hidden: Vec<_> = check.get_arguments().filter(|of| of.is_hide_set()).collect();
        assert!(!hidden.is_empty());
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for help in hidden.iter().filter_map(|of| of.get_help()) {
                assert!(!script.contains(&help.to_string()), "{shell}: {help}");
            }
            assert!(!script.contains("daemon'") && !script.contains("--daemon"), "{shell}");
        }
        let bash = script(Shell::Bash);
        let of_check = bash.split("dendro__subcmd__check)").nth(1).unwrap();
        let offered = of_check.lines().find(|line| line.contains("opts=")).unwrap();
        assert!(offered.contains(" --data ") && offered.contains(" -h "), "{offered}");
        for hidden in hidden.iter().filter_map(|of| of.get_short()) {
            assert!(!offered.contains(&format!("-{hidden} ")), "{offered}");
        }
    }

    #[test]
    fn every_name_of_the_command_is_completed() {
        for shell in [Shell::Bash, Shell::Zsh] {
            let script = script(shell);
            for (name, verb) in LINKED_NAMES {
                assert!(script.contains(&format!("{name}) verb={verb} ;;")), "{shell}: {name}");
            }
            assert!(script.contains(&names()), "{shell}");
        }
    }

    #[test]
    fn zsh_asks_for_options_and_versions() {
        let script = script(Shell::Zsh);
        assert!(script.contains(":OPTIONS:_dendro_options"), "{script}");
        assert!(script.contains(":_dendro_targets"), "{script}");
        assert_eq!(script.matches(":_dendro_settings' \\\n").count(), 1, "{script}");
        for argument in [":tree -- ", "::forks -- "] {
            let line = script.lines().find(|line| line.contains(argument)).unwrap();
            assert!(line.contains(":_dendro_targets"), "{line}");
        }
        assert!(script.starts_with("#compdef dendro mkfs.dendro"), "{script}");
        assert_eq!(script.matches("\n_dendro() {").count(), 1, "{script}");
        assert_eq!(script.matches("\n_dendro_written_out() {").count(), 1, "{script}");
    }
}
