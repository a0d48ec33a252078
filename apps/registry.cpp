#include "registry.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "calm/base/number_text.hpp"
#include "command/suggest.hpp"
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

std::string joined(std::vector<std::string> const& lines, std::string const& between = "; ") {
    std::string all;
    for (auto const& line : lines) all += (all.empty() ? "" : between) + line;
    return all;
}

// Reasons why no configuration fits: differences other than sizes, and sizes that the models refuse.
std::vector<std::string> obstacles(stored_model const& model) {
    auto lines = impossible_sizes(model);
    if (model.description.kind != model_kind::autoregressive)
        for (auto& line : differences_from(model.sizes, model)) lines.push_back(std::move(line));
    return lines;
}

// A name for the source file of a stored model: its configuration, else its directory, unless that name is taken.
std::string name_for(stored_model const& model) {
    auto const possible = [](std::string const& name) {
        auto const usual = [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
        };
        auto const all = names();
        return !name.empty() && name.size() <= 64 && name[0] != '-' && std::all_of(name.begin(), name.end(), usual) &&
               std::find(all.begin(), all.end(), name) == all.end();
    };
    auto const stated = model.description.calm ? model.description.calm->configuration : "";
    auto const folder = std::filesystem::path(model.directory).lexically_normal();
    for (auto const& name : {stated, folder.filename().string(), folder.parent_path().filename().string()})
        if (possible(name)) return name;
    return "mine";
}

// The C++ type of a stored model's head; "" for the default head or for an autoencoder.
std::string head_type(stored_model const& model) {
    auto const* const facts = model.sizes.head.facts;
    return facts == nullptr || facts->name == default_head::name ? "" : std::string(facts->type);
}

// The includes of the source file. A head from outside the library needs a header that only its author knows.
std::string includes_of(std::string const& head) {
    std::string const usual = "#include \"compiled_configuration.hpp\"\n";
    return head.empty() || head.starts_with("calm::") ? usual
                                                      : usual + "// and, by a line here, the header of " + head + "\n";
}

std::string member(std::string_view name, std::string const& value) {
    return "." + std::string(name) + " = " + value;
}
std::string member(std::string_view name, index_t value) {
    return member(name, std::to_string(value));
}
std::string member(std::string_view name, double value) {
    return member(name, shortest(value));
}

// Designated initialisers of sizes, in the order of declaration that C++ requires.
template <class Sizes> std::vector<std::string> members_of(Sizes const& sizes) {
    std::map<index_t const*, std::string> by_place;
    Sizes::visit_fields(sizes, [&](number_field const& field, index_t const& size) {
        by_place.emplace(&size, member(field.key, size));
    });
    std::vector<std::string> all;
    for (auto& [place, text] : by_place) all.push_back(std::move(text));
    return all;
}

std::string scaling_value(rotary_scaling const& scaling) {
    std::vector<std::string> all{member("type", "calm::rope_type::" + std::string(name_of(scaling.type)))};
    rotary_scaling::visit_fields(scaling,
                                 [&](std::string_view name, auto value) { all.push_back(member(name, value)); });
    return "{" + joined(all, ", ") + "}";
}

// Includes what is not a size only if it is not the default.
std::string llama_members(llama_sizes const& c, std::string const& between) {
    llama_sizes const usual;
    auto all = members_of(c);
    if (c.head_dim != usual.head_dim) all.push_back(member("head_dim", c.head_dim));
    if (c.rope_theta != usual.rope_theta) all.push_back(member("rope_theta", c.rope_theta));
    if (c.rope_scaling != usual.rope_scaling) all.push_back(member("rope_scaling", scaling_value(c.rope_scaling)));
    if (c.rms_norm_eps != usual.rms_norm_eps) all.push_back(member("rms_norm_eps", c.rms_norm_eps));
    return joined(all, between);
}

std::string autoregressive_unit(stored_model const& model, std::string const& name) {
    auto const c = model.autoregressive();
    std::string const tied = c.tie_word_embeddings ? ",\n    .tie_word_embeddings = true" : "";
    return "#include \"compiled_autoregressive.hpp\"\n\nnamespace {\n\n"
           "constexpr calm::autoregressive_configuration sizes{\n    .llama = {" +
           llama_members(c.llama, ",\n              ") + "}" + tied + ",\n    " +
           member("vocab_size", model.vocabulary()) +
           "};\n\nbool const registered = calm::apps::compile_autoregressive<sizes>(\"" + name +
           "\", calm::apps::recipes());\n\n}  // namespace\n";
}

}  // namespace

std::vector<entry> const& compiled_configurations() {
    return registered();
}

bool register_configuration(std::string const& name, decltype(entry::sizes) const& sizes, recipes const& defaults,
                            std::string const& device, compiled_work work) {
    auto& all = registered();
    auto place = std::find_if(all.begin(), all.end(), [&](entry const& other) { return other.name >= name; });
    if (place == all.end() || place->name != name)
        place = all.insert(place, {.name = name, .sizes = sizes, .defaults = defaults});
    place->work.emplace(device, std::move(work));
    return true;
}

compiled_work const& entry::on(device_choice const& device, held_weights weights) const {
    bool const is_auto = device.name == "auto";
    bool const is_bf16 = weights == held_weights::bf16;
    std::string const held = is_bf16 ? "-bf16" : "";
    auto chosen = device.name + held;
    if (is_auto) {  // only here, because looking for a GPU takes a while
        auto const gpu = work.find("cuda" + held);
        std::string missing;
        bool const there = as_first_rank([&] {  // all ranks take the same device
            missing = gpu == work.end() ? name + " is not compiled for cuda" + held
                                        : gpu->second.unavailable_reason(device.number_here());
            return missing.empty();
        });
        chosen = (there ? "cuda" : "cpu") + held;
        log_line("--device auto uses " + chosen + (there ? "" : ": " + missing));
    }
    auto const found = work.find(chosen);
    if (found == work.end()) {
        std::string compiled;
        for (auto const& each : work) compiled += (compiled.empty() ? "" : " and ") + each.first;
        throw error(errc::config,
                    "--device " + device.text() + (is_bf16 ? " --dtype bf16" : "") + ": the configuration " + name +
                        " is compiled for " + compiled + ", not for " + chosen +
                        ". This compiles it too: " + line_that_compiles(name + (chosen == "cpu" ? "" : "@" + chosen)));
    }
    auto const why = is_auto && is_first_rank() ? "" : found->second.unavailable_reason(device.number_here());
    if (!why.empty())
        throw error(errc::device, "--device " + device.text() + ": " + why + "; leave --device out to use the cpu");
    return found->second;
}

entry const& configuration_named(std::string const& name) {
    for (auto const& one : registered())
        if (one.name == name) return one;
    auto const near = did_you_mean(name, names());
    throw error(errc::config, "the configuration '" + name + "' is not compiled into this program; " + listed(names()) +
                                  (registered().size() == 1 ? " is" : " are") + (near.empty() ? "." : near) +
                                  " If apps/configs/" + name +
                                  ".cpp is there, this compiles it: " + line_that_compiles(name));
}

stored_model opened_model(std::string const& directory) {
    auto model = read_model_description(directory);
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
    if (auto const lines = obstacles(model); !lines.empty())
        throw error(errc::config, model.directory, "",
                    "expected a model that a configuration can describe, found one that none can: " + joined(lines));
    std::string sentence = "expected the sizes of a configuration that is compiled into this program, found others:";
    for (auto const& one : all) sentence += " not " + one.name + " (" + joined(differences_from(one, model)) + ").";
    auto const name = name_for(model);
    throw error(errc::config, model.directory, "", sentence + " Write this as apps/configs/" + name + ".cpp:",
                lines_of("\n" + unit_of(model, name) + "\nand compile it: " + line_that_compiles(name)));
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

std::string unit_of(stored_model const& model, std::string const& name) {
    if (model.description.kind == model_kind::autoregressive) return autoregressive_unit(model, name);
    std::string const inner = ",\n                    ";
    auto const head_of = head_type(model);
    std::string text = includes_of(head_of) + "\nnamespace {\n\nconstexpr calm::configuration<" + head_of +
                       "> sizes{\n    .autoencoder = {" + member("vocab_size", model.vocabulary()) + inner +
                       joined(members_of(model.sizes.autoencoder), inner) + "}";
    if (model.description.kind == model_kind::calm) {
        auto const& c = model.sizes;
        std::string const outer = ",\n    ";
        text += outer + llama_members(llama_sizes_of(c), outer);
        std::string head;
        for (auto const& size : c.head.sizes)
            head += (head.empty() ? "" : ", ") + ("." + std::string(size.field.key)) + " = " + text_of(size);
        if (!head.empty()) text += outer + ".head = {" + head + "}";
        if (c.input != input_kind::tokens)
            text += outer + ".input = calm::input_kind::" + (c.input == input_kind::latents ? "latents" : "both");
    }
    return text + "};\n\nbool const registered = calm::apps::compile_configuration<sizes>(\"" + name +
           "\", calm::apps::recipes());\n\n}  // namespace\n";
}

}  // namespace calm::apps
