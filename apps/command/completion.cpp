#include "command/completion.hpp"

#include <utility>

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
    std::string names, cases;
    for (auto const& option : command.options) {
        names += (names.empty() ? "" : " ") + option.name;
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

bool asks_for_completion(std::span<char const* const> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        std::string const word = words[i];
        if (word != "--completion" && !word.starts_with("--completion=")) continue;
        require_completed_shell(word == "--completion" && i + 1 < words.size() ? words[i + 1]
                                                                               : word.substr(word.find('=') + 1));
        return true;
    }
    return false;
}

std::string bash_completion(std::string const& program, std::span<completed_command const> commands) {
    std::string const function = "_calm_" + program;
    auto const offer = [](std::string const& words) {
        return "COMPREPLY=($(compgen -W '" + words + "' -- \"$word\"))";
    };
    std::string body;
    if (commands.size() == 1 && commands.front().word.empty()) {
        body = cases_of(commands.front());
    } else {
        std::vector<std::pair<std::string, std::string>> words;  // first words, with the second words of each
        std::string cases;
        for (auto const& command : commands) {
            auto const space = command.word.find(' ');
            auto const first = command.word.substr(0, space);
            if (first.empty()) {
                cases += "    *)\n" + cases_of(command) + "        ;;\n";
                continue;
            }
            if (words.empty() || words.back().first != first) words.emplace_back(first, "");
            if (space != std::string::npos) words.back().second += command.word.substr(space + 1) + " ";
            cases += "    '" + command.word + "'" + (space == std::string::npos ? "|'" + command.word + " '*" : "") +
                     ")\n" + cases_of(command) + "        ;;\n";
        }
        std::string firsts, seconds;
        for (auto const& [first, second] : words) {
            firsts += first + " ";
            if (!second.empty())
                seconds += "    if ((COMP_CWORD == 2)) && [[ ${COMP_WORDS[1]} == " + first +
                           " && $word != -* ]]; then\n        " + offer(second) + "\n        return\n    fi\n";
        }
        bool const takes_options = commands.back().word.empty();
        body = std::string("    if ((COMP_CWORD == 1))") + (takes_options ? " && [[ $word != -* ]]" : "") +
               "; then\n        " + offer(takes_options ? firsts : firsts + "--help --version --completion") +
               "\n        return\n    fi\n" + seconds + "    case \"${COMP_WORDS[*]:1:2}\" in\n" + cases + "    esac\n";
    }
    return "# bash: source <(" + program + " --completion bash)\n" + function + "() {\n" +
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n" + body +
           "}\ncomplete -o bashdefault -o default -F " + function + " " + program + "\n";
}

}  // namespace calm::apps
