#pragma once
// Ensures that all ranks of a job have the same options, models and settings.

#include <functional>
#include <string>
#include <vector>

#include "calm/io/stored_model.hpp"
#include "calm/ranks/detail/setting.hpp"
#include "command/options.hpp"

namespace calm::apps {

// Sets this process's thread count, and the timeout between ranks, from its options.
void set_threads_and_timeout(execution_options& options);

// Calls read(), which returns this process's settings. If it throws on one of several ranks, or its settings differ
// from rank 0's, all ranks throw the same error: that of the first failing rank.
void agree(std::function<std::vector<setting>()> const& read);

// Reads the options of a command line on all ranks and requires that they agree. Empty if nothing is left to do, as
// after --help.
template <class Read, class SettingsOf> auto read_on_all_ranks(Read const& read, SettingsOf const& settings_of) {
    decltype(read()) options;
    agree([&] {
        options = read();
        return options ? settings_of(*options) : std::vector<setting>{{"command", "prints, and ends"}};
    });
    return options;
}
template <class Read> auto read_on_all_ranks(Read const& read) {
    return read_on_all_ranks(read, [](auto const& options) { return options.rank_settings; });
}

// Throws errc::distributed on all ranks if one of them does not see rank 0's file at a path.
void require_shared(std::string const& path);

// Reads a model's directory; all ranks must have the same model.
stored_model read_model_on_all_ranks(std::string const& directory);

}  // namespace calm::apps
