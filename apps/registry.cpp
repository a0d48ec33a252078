#include "registry.hpp"

#include <algorithm>
#include <utility>

#include "suggest.hpp"

namespace calm::apps {

namespace {

std::vector<entry>& registered() {
    static std::vector<entry> all;
    return all;
}

std::vector<std::string> names() {
    std::vector<std::string> all;
    for (auto const& one : registered()) all.push_back(one.name);
    return all;
}

std::string line_that_compiles(std::string const& name) {
    std::string list;
    for (auto const& one : names()) list += one + ";";
    return "cmake --preset release -DCALM_CONFIGS=\"" + list + name + "\" && cmake --build --preset release";
}

std::vector<std::string> differences_from(entry const& one, stored_model const& model) {
    return model.description.kind == model_kind::autoencoder ? differences(one.sizes.autoencoder, model)
                                                             : differences(one.sizes, model);
}

}  // namespace

std::vector<entry> const& compiled_configurations() {
    return registered();
}

bool register_configuration(entry one) {
    auto& all = registered();
    auto const place = std::find_if(all.begin(), all.end(), [&](entry const& other) { return other.name > one.name; });
    all.insert(place, std::move(one));
    return true;
}

entry const& configuration_named(std::string const& name) {
    for (auto const& one : registered())
        if (one.name == name) return one;
    throw error(errc::config, "the configuration '" + name + "' is not compiled into this program; " + listed(names()) +
                                  (registered().size() == 1 ? " is" : " are") + did_you_mean(name, names()) +
                                  " If apps/configs/" + name +
                                  ".cpp is there, this compiles it: " + line_that_compiles(name));
}

entry const& configuration_of(stored_model const& model) {
    auto const& all = registered();
    std::string const stated = model.description.calm ? model.description.calm->configuration : "";
    for (auto const& one : all)
        if (one.name == stated && differences_from(one, model).empty()) return one;
    for (auto const& one : all)
        if (differences_from(one, model).empty()) return one;
    std::string sentence = "no configuration of these sizes is compiled into this program:";
    for (auto const& one : all) {
        sentence += " not " + one.name + " (";
        auto const lines = differences_from(one, model);
        for (std::size_t i = 0; i < lines.size(); ++i) sentence += (i > 0 ? "; " : "") + lines[i];
        sentence += ").";
    }
    std::string const name = stated.empty() ? "NAME" : stated;
    throw error(errc::config, model.directory, "",
                sentence + " With a unit apps/configs/" + name +
                    ".cpp of its sizes (docs/configurations.md), this compiles it: " + line_that_compiles(name));
}

}  // namespace calm::apps
