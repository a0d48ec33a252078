#pragma once
// What a shell offers behind a program's name.

#include <span>
#include <string>
#include <vector>

#include "command/command.hpp"

namespace calm::apps {

// The options behind one word, e.g. `calm` of train; the word is empty where the program has no such words.
struct completed_command {
    std::string word;
    std::vector<declared_option> options;
};

// Every command of every program, by its last word. What its options take is nobody's: they are to be read only.
std::vector<completed_command> every_command();

// A script for bash: options by their names, values that are files, folders or one of some names. Load it by
// source <(program --completion bash).
std::string bash_completion(std::string const& program, std::span<completed_command const> commands);

// The shell of --completion. Throws errc::usage for one that has no script here.
void require_completed_shell(std::string const& shell);

}  // namespace calm::apps
