#include "command/sweep_combinations.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <sstream>
#include <utility>

#include "calm/base/error.hpp"
#include "command/command_line.hpp"
#include "command/suggest.hpp"
#include "plugin/chosen_sizes.hpp"

namespace calm::apps {

namespace {

constexpr std::size_t most_combinations = 1000;

varied_values values_listed(std::string const& option, std::string name, std::string const& list) {
    varied_values all{std::move(name), {}, false};
    std::istringstream words(list);
    for (std::string value; std::getline(words, value, ',');) {
        require(!value.empty(), errc::usage, option, ": expected a value between commas, found ", list);
        require(std::find(all.values.begin(), all.values.end(), value) == all.values.end(), errc::usage, option,
                ": expected different values, found ", value, " twice");
        all.values.push_back(value);
    }
    require(!all.values.empty() && list.back() != ',', errc::usage, option,
            ": expected values separated by commas, found '", list, "'");
    return all;
}

}  // namespace

std::vector<varied_values> varied_values_of(sweep_options const& o) {
    std::vector<std::string> options{"learning-rate", "muon", "block"};
    options.insert(options.end(), autoencoder_numbers::names.begin(), autoencoder_numbers::names.end());
    for (auto const& [name, value] : o.head) options.push_back("head-" + name);
    std::vector<varied_values> lists;
    for (auto const& text : o.vary) {
        auto const at = text.find('=');
        require(at != std::string::npos && at > 0, errc::usage, "--vary: expected NAME=VALUE,..., found '", text, "'");
        auto const name = text.substr(0, at);
        auto list = values_listed("--vary " + name, name, text.substr(at + 1));
        require(name != "seed" && name != "seeds", errc::usage, "--vary ", name, ": give --seeds ",
                text.substr(at + 1));
        require(std::none_of(lists.begin(), lists.end(), [&](auto const& one) { return one.name == name; }),
                errc::usage, "--vary ", name, ": expected one list, found two");
        if (std::find(options.begin(), options.end(), name) == options.end()) {
            list.is_size = true;
            try {
                for (auto const& configuration : o.configurations)
                    for (auto const& value : list.values) name_with_sizes(configuration, name + "=" + value);
            } catch (error const& refused) {
                auto const hint = did_you_mean(name, options);
                throw error(errc::usage,
                            hint.empty() ? refused.what() : "--vary: there is no option or size " + name + hint);
            }
        }
        lists.push_back(std::move(list));
    }
    if (!o.seeds.empty()) lists.push_back(values_listed("--seeds", "seed", o.seeds));
    std::size_t combinations = 1;
    for (auto const& one : lists) {
        combinations *= one.values.size();
        require(combinations <= most_combinations, errc::usage, "--vary: expected at most ", most_combinations,
                " combinations");
    }
    return lists;
}

std::vector<sweep_options> combinations_of_sweep(int argc, char const* const* argv, sweep_options const& all) {
    auto const lists = varied_values_of(all);
    std::vector<std::size_t> chosen(lists.size(), 0);
    std::vector<sweep_options> combinations;
    for (bool is_last = false; !is_last;) {
        std::vector<std::string> words(argv, argv + argc);
        std::vector<std::string> sizes;
        std::vector<std::pair<std::string, std::string>> varied;
        for (std::size_t i = 0; i < lists.size(); ++i) {
            auto const& value = lists[i].values[chosen[i]];
            if (lists[i].is_size) {
                sizes.push_back(lists[i].name + "=" + value);
            } else {
                words.push_back("--" + lists[i].name + "=" + value);
                varied.emplace_back(lists[i].name, value);
            }
        }
        std::vector<char const*> pointers;
        for (auto const& word : words) pointers.push_back(word.c_str());
        auto one =
            lists.empty() ? all : *read_options<sweep_options>(static_cast<int>(pointers.size()), pointers.data());
        for (auto const& size : sizes)
            for (auto& name : one.configurations) name = name_with_sizes(name, size);
        one.varied = std::move(varied);
        one.record = all.record;
        combinations.push_back(std::move(one));

        is_last = true;
        for (std::size_t i = lists.size(); is_last && i > 0; --i) {
            chosen[i - 1] = (chosen[i - 1] + 1) % lists[i - 1].values.size();
            is_last = chosen[i - 1] == 0;
        }
    }
    return combinations;
}

}  // namespace calm::apps
