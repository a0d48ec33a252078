#pragma once
// That all ranks of a job do the same: the options, the models and the settings that they have alike.

#include <functional>
#include <string>
#include <vector>

#include "calm/io/model_directory.hpp"
#include "calm/ranks/setting.hpp"
#include "command/options.hpp"

namespace calm::apps {

// What a process has of its machine, and how long it waits for other ranks, as its options say.
void take_place(execution_options& options);

// Calls read(), which says what this process will do. Where it throws at one of several ranks, or says something else
// than at rank 0, all ranks throw the same error: that of the first rank that has one.
void agree(std::function<std::vector<setting>()> const& read);

// The options that read() reads from a command line; nothing where all is done, e.g. by --help. All ranks agree on
// them.
template <class Read, class AlikeOf> auto read_alike(Read const& read, AlikeOf const& alike_of) {
    decltype(read()) options;
    agree([&] {
        options = read();
        return options ? alike_of(*options) : std::vector<setting>{{"command", "prints, and ends"}};
    });
    return options;
}
template <class Read> auto read_alike(Read const& read) {
    return read_alike(read, [](auto const& options) { return options.alike; });
}

// Throws errc::distributed at all ranks where one does not see the file that rank 0 has at a path.
void require_shared(std::string const& path);

// What is in a model's directory, which all ranks agree on where there are several.
stored_model read_model_alike(std::string const& directory);

}  // namespace calm::apps
