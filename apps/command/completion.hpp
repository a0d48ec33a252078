#pragma once
// Shell completion of the programs.

#include <span>
#include <string>
#include <vector>

#include "command/command.hpp"

namespace calm::apps {

// The options that follow a command's words, such as `calm` of train or `train calm` of calm. The words are empty if
// the program has no commands, and for the last of several, whose options follow any other word.
struct completed_command {
    std::string word;
    std::vector<declared_option> options;
};

// Every command of every program, by its last word. Only read the options: their `take` functions refer to variables
// that no longer exist.
std::vector<completed_command> every_command();

// The completion of `calm`, with the commands of all programs.
std::string completion_of_calm();

// A bash script that completes option names, and values that are files, folders or one of several names. Load it with
// source <(program --completion bash).
std::string bash_completion(std::string const& program, std::span<completed_command const> commands);

// Whether --completion is among the words of a program: at any position, since a shell completes the whole program.
// Throws errc::usage if it names an unsupported shell.
bool asks_for_completion(std::span<char const* const> words);

// Throws errc::usage if --completion names an unsupported shell.
void require_completed_shell(std::string const& shell);

}  // namespace calm::apps
