#include "command/completion.hpp"

#include "calm/base/error.hpp"

namespace calm::apps {

namespace {

// Bash code that completes an option's values; it offers none if any value is possible.
std::string values_of(declared_option const& option) {
    std::string names;
    for (auto const& name : option.choices) names += (names.empty() ? "" : " ") + name;
    if (!names.empty()) return "COMPREPLY=($(compgen -W '" + names + "' -- \"$word\"))";
    if (option.type == "DIR") return "compopt -o filenames; COMPREPLY=($(compgen -d -- \"$word\"))";
    if (option.type == "FILE" || option.type == "PATH" || option.type == "SPEC")
        return "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\"))";
    return "COMPREPLY=()";
}

std::string cases_of(completed_command const& command) {
    std::string names = "--help", cases;
    for (auto const& option : command.options) {
        names += " " + option.name;
        if (option.count != declared_option::value_count::none)
            cases += "        " + option.name + ") " + values_of(option) + " ;;\n";
    }
    return "        case $before in\n" + cases + "        *) COMPREPLY=($(compgen -W '" + names +
           "' -- \"$word\")) ;;\n        esac\n";
}

}  // namespace

void require_completed_shell(std::string const& shell) {
    if (shell != "bash") throw error(errc::usage, "--completion: expected bash, found '" + shell + "'");
}

std::string bash_completion(std::string const& program, std::span<completed_command const> commands) {
    std::string const function = "_calm_" + program;
    std::string words, cases;
    for (auto const& command : commands) {
        if (command.word.empty())
            return "# bash: source <(" + program + " --completion bash)\n" + function + "() {\n" +
                   "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n" + cases_of(command) +
                   "}\ncomplete -F " + function + " " + program + "\n";
        words += command.word + " ";
        cases += "    " + command.word + ")\n" + cases_of(command) + "        ;;\n";
    }
    return "# bash: source <(" + program + " --completion bash)\n" + function + "() {\n" +
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n" +
           "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '" + words +
           "--help --version --completion' -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n" +
           cases + "    esac\n}\ncomplete -F " + function + " " + program + "\n";
}

}  // namespace calm::apps
