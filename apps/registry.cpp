#include "registry.hpp"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <utility>

#include "calm/io/read_model_description.hpp"
#include "calm/runs/detail/missing_gpu.hpp"
#include "command/suggest.hpp"
#include "plugin/chosen_sizes.hpp"
#include "plugin/named_sizes.hpp"
#include "plugin/plugin.hpp"
#include "plugin/source_text.hpp"
#include "program.hpp"
#include "run/ranks.hpp"

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

// The build command for a name together with everything already compiled.
std::string line_that_compiles(std::string const& name) {
    std::string list;
    for (auto const& one : registered())
        for (auto const& [device, work] : one.work) list += one.name + (device == "cpu" ? "" : "@" + device) + ";";
    return "cmake --preset release -DCALM_CONFIGS=\"" + list + name + "\" && cmake --build --preset release";
}

// How to use a configuration that is not compiled, without building the program again: a sentence after a space. "" if
// its sizes are unknown or no compiled configuration is of its kind.
std::string sentence_on_demand(std::string const& name) {
    auto const* const sizes = sizes_named(name);
    if (sizes == nullptr) return "";
    std::string best;
    for (auto const& one : registered()) {
        if (one.sizes.index() != sizes->index()) continue;
        auto const changed = name_with_sizes(one, *sizes);
        if (best.empty() || changed.size() < best.size()) best = changed;
    }
    if (best.empty()) return "";
    auto const colon = best.find(':');
    if (colon == std::string::npos) return " --config " + best + " has the same sizes.";
    return " --config " + best.substr(0, colon) + " --set " + best.substr(colon + 1) +
           " has the same sizes and needs no new build: it is compiled when it is first used.";
}

// Throws errc::config if a name is NAME@DEVICE, as CALM_CONFIGS has it, of a compiled configuration.
void refuse_device_in(std::string const& name) {
    auto const at = name.find('@');
    if (at == std::string::npos) return;
    auto const of = name.substr(0, at);
    auto const device = name.substr(at + 1, name.find('-', at) - at - 1);
    auto const all = names();
    if (std::find(all.begin(), all.end(), of) != all.end() &&
        std::find(device_names.begin(), device_names.end(), device) != device_names.end())
        throw error(errc::config, "expected the name of a configuration without a device, found '" + name +
                                      "'; give --config " + of + " --device " + device);
}

std::vector<std::string> differences_from(configuration<any_head> const& sizes, stored_model const& model) {
    return model.description.kind == model_kind::autoencoder ? differences(sizes.autoencoder, model)
                                                             : differences(sizes, model);
}
std::vector<std::string> differences_from(entry const& one, stored_model const& model) {
    return one.is_autoregressive() ? differences(one.autoregressive(), model) : differences_from(one.calm(), model);
}

entry const& named(std::string const& name, bool autoregressive) {
    auto const& one = configuration_named(name);
    if (one.is_autoregressive() == autoregressive) return one;
    throw error(
        errc::config,
        autoregressive
            ? "the configuration '" + name + "' is for a CALM, expected one for an autoregressive model: use train calm"
            : "the configuration '" + name + "' is for an autoregressive model, expected one for a CALM: use train ar");
}

// Reasons why no configuration fits: differences other than sizes, and sizes that the models refuse.
std::vector<std::string> obstacles(stored_model const& model) {
    auto lines = impossible_sizes(model);
    if (model.description.kind != model_kind::autoregressive)
        for (auto& line : differences_from(model.sizes, model)) lines.push_back(std::move(line));
    return lines;
}

// A name for the sizes of a stored model: its configuration, else its directory, unless that name is taken.
std::string name_for(stored_model const& model) {
    auto const possible = [](std::string const& name) {
        auto const usual = [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                   std::string_view("-_:=,.").find(c) != std::string_view::npos;
        };
        auto const all = names();
        return !name.empty() && name.size() <= 200 && name[0] != '-' && name[0] != '.' &&
               std::all_of(name.begin(), name.end(), usual) && std::find(all.begin(), all.end(), name) == all.end();
    };
    auto const stated = model.description.calm ? model.description.calm->configuration : "";
    auto const folder = std::filesystem::path(model.directory).lexically_normal();
    for (auto const& name : {stated, folder.filename().string(), folder.parent_path().filename().string()})
        if (possible(name)) return name;
    return "mine";
}

// The sizes of a stored model. An autoencoder is part of any language model.
any_sizes sizes_of(stored_model const& model) {
    if (model.description.kind == model_kind::autoregressive) return model.autoregressive();
    if (model.description.kind == model_kind::calm) return model.sizes;
    configuration<any_head> sizes;
    sizes.autoencoder = model.sizes.autoencoder;
    sizes.head = any_head(default_head());
    return sizes;
}

// Keeps a configuration on demand; references to it stay valid.
entry const& kept(entry one) {
    static std::deque<entry> all;
    for (auto const& other : all)
        if (other.name == one.name && other.sizes == one.sizes) return other;
    return all.emplace_back(std::move(one));
}

// The configuration that a model was trained with, if it was one on demand that this program can make too. The name
// comes from a file: it may be any text.
entry const* made_before(std::string const& name, stored_model const& model) {
    if (name.find(':') == std::string::npos) return nullptr;
    try {
        auto const& one = configuration_named(name);
        return differences_from(one, model).empty() ? &one : nullptr;
    } catch (error const&) {
        return nullptr;
    }
}

// The key of entry::work for a device. Reports on standard error which one `auto` chose.
std::string work_on(entry const& one, device_choice const& device, std::string const& held) {
    if (device.name != "auto") return device.name + held;
    // Only here, because looking for a GPU takes a while.
    auto const gpu = one.work.find("cuda" + held);
    std::string missing;
    bool const there = as_first_rank([&] {  // all ranks take the same device
        missing = gpu == one.work.end() ? one.name + " is not compiled for cuda" + held
                                        : gpu->second.unavailable_reason(device.number_here());
        return missing.empty();
    });
    auto chosen = (there ? "cuda" : "cpu") + held;
    log_line("--device auto uses " + chosen + (there ? "" : ": " + missing));
    return chosen;
}

// Throws errc::device unless the reason why this machine lacks a device is empty.
void require_no(std::string const& reason, device_choice const& device) {
    if (!reason.empty())
        throw error(errc::device, "--device " + device.text() + ": " + reason + "; leave --device out to use the cpu");
}

// Throws as entry::on() if a configuration cannot be compiled for a device or used on it, before it is compiled.
void require_possible_on(entry const& one, device_choice const& device, std::string const& chosen) {
    require_compiled_device(one, chosen);
    if (is_of_cuda(chosen)) require_no(missing_gpu(device.number_here()), device);
}

}  // namespace

std::vector<entry> const& compiled_configurations() {
    return registered();
}

bool register_configuration(std::string const& name, decltype(entry::sizes) const& sizes, recipes const& defaults,
                            std::string const& device, compiled_functions work) {
    auto& all = registered();
    auto place = std::find_if(all.begin(), all.end(), [&](entry const& other) { return other.name >= name; });
    if (place == all.end() || place->name != name)
        place = all.insert(place, {.name = name, .sizes = sizes, .defaults = defaults});
    place->work.emplace(device, std::move(work));
    return true;
}

compiled_functions const& entry::on(device_choice const& device, held_weights weights, needed_work needed) const {
    bool const is_int8 = weights == held_weights::int8;
    if (is_int8 && device.name != "cpu" && device.name != "auto")
        throw error(errc::config, "--device " + device.text() +
                                      " --dtype int8: expected --device cpu, which alone "
                                      "computes with weights in int8; use it, or --dtype bf16");
    bool const is_auto = device.name == "auto" && !is_int8;
    auto const chosen = is_int8 ? "cpu" : work_on(*this, device, weights == held_weights::bf16 ? "-bf16" : "");
    auto found = work.find(chosen);
    if (found == work.end()) require_possible_on(*this, device, chosen);
    auto made = found == work.end() ? compiled_functions() : found->second;
    if (load_on_demand(*this, chosen, needed, made)) found = work.insert_or_assign(chosen, std::move(made)).first;
    if (!is_auto || !is_first_rank()) require_no(found->second.unavailable_reason(device.number_here()), device);
    return found->second;
}

void entry::require_device(device_choice const& device) const {
    auto const chosen = work_on(*this, device, "");
    auto const found = work.find(chosen);
    if (found == work.end())
        require_possible_on(*this, device, chosen);
    else
        require_no(found->second.unavailable_reason(device.number_here()), device);
}

entry const& configuration_named(std::string const& name) {
    for (auto const& one : registered())
        if (one.name == name) return one;
    if (auto const colon = name.find(':'); name.find('=', colon) != std::string::npos) {
        auto one = with_sizes(configuration_named(name.substr(0, colon)), name.substr(colon + 1));
        return one.name == name.substr(0, colon) ? configuration_named(one.name) : kept(std::move(one));
    }
    refuse_device_in(name);
    auto const on_demand = sentence_on_demand(name);
    auto const near = on_demand.empty() ? did_you_mean(name, names()) : "";
    throw error(errc::config, "the configuration '" + name + "' is not compiled into this program; " + listed(names()) +
                                  (registered().size() == 1 ? " is" : " are") + (near.empty() ? "." : near) +
                                  on_demand + " If apps/configs/" + name +
                                  ".cpp is there, this compiles it: " + line_that_compiles(name));
}

stored_model opened_model(std::string const& directory, std::string const& autoencoder) {
    auto model = read_model_description(directory, autoencoder);
    for (auto const* each = &model; each != nullptr; each = each->autoencoder.get())
        if (auto const& unread = each->weights->unread(); !unread.empty())
            log_line(each->directory + ": reads the weights from " +
                     std::filesystem::path(each->weights->path()).filename().string() + "; " + joined(unread, " and ") +
                     (unread.size() == 1 ? " is" : " are") + " not read");
    return model;
}

entry const& configuration_of(stored_model const& model) {
    auto const& all = registered();
    std::string const stated = model.description.calm ? model.description.calm->configuration : "";
    for (auto const& one : all)
        if (one.name == stated && differences_from(one, model).empty()) return one;
    for (auto const& one : all)
        if (differences_from(one, model).empty()) return one;
    if (auto const* const one = made_before(stated, model); one != nullptr) return *one;
    if (auto const lines = obstacles(model); !lines.empty())
        throw error(errc::config, model.directory, "",
                    "expected a model that a configuration can describe, found one that none can: " +
                        joined(lines, "; "));
    auto const name = name_for(model);
    auto const sizes = sizes_of(model);
    auto const* const calm = std::get_if<0>(&sizes);
    if (calm != nullptr && !calm->head.facts->type.starts_with("calm::"))
        throw error(errc::config, model.directory, "",
                    "expected a head of the library, found " + std::string(calm->head.facts->type) +
                        ". Write this as apps/configs/" + name + ".cpp:",
                    lines_of("\n" + unit_of(sizes, name) + "\nand compile it: " + line_that_compiles(name)));
    recipes defaults;
    if (calm != nullptr) defaults.calm.objective = any_objective(calm->head.facts->objective);
    return kept({.name = name, .sizes = sizes, .defaults = defaults, .on_demand = true});
}

entry const& calm_named(std::string const& name) {
    return named(name, false);
}

entry const& autoregressive_named(std::string const& name) {
    return named(name, true);
}

std::string head_problem(number_field const& field, double value, std::string const& owner) {
    if (field_value{field, value}.is_allowed()) return "";
    return "--head-" + std::string(field.option) + ": expected from " + six_digits(field.least) + " to " +
           six_digits(field.most) + " for the head of " + owner + ", found " + six_digits(value);
}

std::vector<std::string> head_problems(entry const& one, head_numbers const& numbers) {
    std::vector<std::string> problems;
    for (auto const& [option, value] : numbers) {
        if (!value) continue;
        if (one.is_autoregressive()) {
            problems.push_back("--head-" + option + ": " + one.name + ", an autoregressive model, has no such head");
            continue;
        }
        auto const& head = *one.calm().head.facts;
        auto const* const number = head.objective.find_option(option);
        if (number == nullptr)
            problems.push_back("--head-" + option + ": the head of " + one.name + ", " + std::string(head.name) +
                               ", has no such option");
        else if (auto const problem = head_problem(number->field, *value, one.name); !problem.empty())
            problems.push_back(problem);
    }
    return problems;
}

}  // namespace calm::apps
