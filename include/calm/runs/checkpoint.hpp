#pragma once
/// \file
/// A checkpoint: a model directory (calm/io.hpp) with training.safetensors, the optimizer state, with state.json,
/// counters and settings, and with the manifest, which is written last. It has everything that a run needs to resume
/// bit for bit.
/// \shows{tests/runs/checkpoint_test.cpp,a_record_is_read_back_completely}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/simdjson.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/json_object.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/safetensors.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/runs/recipe_record.hpp"
#include "calm/text/block_reader.hpp"
#include "calm/train/training_callbacks.hpp"

namespace calm {

inline constexpr std::string_view state_file = "state.json";                      ///< text of a checkpoint_record
inline constexpr std::string_view optimizer_state_file = "training.safetensors";  ///< optimizer state

/// Contents of state.json.
struct checkpoint_record {
    training_state state;         ///< without the optimizer state
    std::uint64_t seed = 0;       ///< of the run; with the step it determines all random state
    block_position data;          ///< position of the next block
    std::uint64_t log_bytes = 0;  ///< length of metrics.jsonl at this checkpoint
    std::optional<double> score;  ///< of an evaluation at this step; the highest is the best
    recipe_record recipe;         ///< settings that the run was started with
};

namespace detail {

inline std::string state_text(checkpoint_record const& r) {
    nlohmann::ordered_json recipe = nlohmann::ordered_json::object();
    for (auto const& [option, value] : r.recipe) recipe[option] = value;
    nlohmann::ordered_json json{{"format", 1},
                                {"step", r.state.step},
                                {"updates", r.state.updates},
                                {"skipped", r.state.skipped},
                                {"seconds", r.state.seconds},
                                {"seed", r.seed},
                                {"epoch", r.data.epoch},
                                {"block", r.data.index},
                                {"log_bytes", r.log_bytes},
                                {"score", nullptr},
                                {"recipe", recipe}};
    if (r.score) json["score"] = *r.score;
    if (r.state.first_phase_steps > 0) json["first_phase_steps"] = r.state.first_phase_steps;
    if (r.state.hidden_from > 0) json["hidden_from"] = r.state.hidden_from;
    auto text = json.dump(1) + "\n";
    require_readable(text, json_limit::state, state_file);
    return text;
}

// Parses the text of a state.json. All keys except first_phase_steps and hidden_from are required; all are checked.
class state_reader {
public:
    state_reader(std::string_view text, std::string const& path) :
        path_(path), root_(json_object(parser_, text, json_limit::state, path)) {}

    checkpoint_record record() const {
        if (number<index_t>("format") != 1)
            fail("format", "expected 1, found another number; a later version of this library wrote it");
        checkpoint_record r;
        r.state.step = number<index_t>("step", limits::steps);
        r.state.updates = number<index_t>("updates", limits::steps);
        r.state.skipped = number<index_t>("skipped", limits::steps);
        if (simdjson::dom::element two; !root_["first_phase_steps"].get(two))
            r.state.first_phase_steps = number<index_t>("first_phase_steps", limits::steps);
        if (simdjson::dom::element young; !root_["hidden_from"].get(young))
            r.state.hidden_from = number<index_t>("hidden_from", r.state.updates);
        if (root_["seconds"].get(r.state.seconds) || r.state.seconds < 0) fail("seconds", "expected a time");
        r.seed = number<std::uint64_t>("seed");
        r.data = {number<std::uint64_t>("epoch"), number<std::uint64_t>("block")};
        r.log_bytes = number<std::uint64_t>("log_bytes");
        auto const score = at("score");
        if (double value = 0; !score.is_null()) {
            if (score.get(value)) fail("score", "expected a number or null");
            r.score = value;
        }
        simdjson::dom::object recipe;
        if (at("recipe").get(recipe)) fail("recipe", "expected an object");
        for (auto const [option, setting] : recipe) {
            std::string_view value;
            if (setting.get(value)) fail("recipe", "expected strings");
            r.recipe.push_back({std::string(option), std::string(value)});
        }
        return r;
    }

private:
    [[noreturn]] void fail(std::string_view key, std::string const& sentence) const {
        throw error(errc::model_file, path_, "key " + in_quotes(key), sentence);
    }
    simdjson::dom::element at(std::string_view key) const {
        simdjson::dom::element value;
        if (root_[key].get(value)) fail(key, "is missing");
        return value;
    }
    template <class T> T number(std::string_view key, T most = std::numeric_limits<T>::max()) const {
        T value = 0;
        if (at(key).get(value)) fail(key, "expected a whole number");
        if (std::cmp_less(value, 0) || value > most)
            fail(key, sentence("expected a whole number from 0 to ", most, ", found ", value));
        return value;
    }

    std::string path_;
    simdjson::dom::parser parser_;
    simdjson::dom::object root_;
};

}  // namespace detail

/// Writes state.json and training.safetensors into a directory and flushes both. Throws errc::storage, and
/// errc::non_finite before anything is written if optimizer state is not finite.
inline void write_training(std::string const& directory, checkpoint_record const& record) {
    std::vector<stored_tensor> tensors;
    for (auto const& m : record.state.optimizer_state)
        tensors.push_back({m.name,
                           m.element == sizeof(double) ? stored_type::f64 : stored_type::f32,
                           {static_cast<index_t>(m.bytes.size() / m.element)},
                           m.bytes});
    for (auto const& tensor : tensors) require_finite(tensor);
    write_safetensors(in_directory(directory, optimizer_state_file), tensors);
    replace_file(in_directory(directory, state_file), detail::state_text(record));
}

/// Parses the text of a state.json; errors call it `path`. Throws errc::model_file.
inline checkpoint_record parse_record(std::string_view text, std::string const& path) {
    return detail::state_reader(text, path).record();
}

/// Reads state.json of a checkpoint. Throws errc::model_file.
inline checkpoint_record read_record(std::string const& directory) {
    auto const path = in_directory(directory, state_file);
    return parse_record(mapped_file::open(path, errc::model_file).text(), path);
}

namespace detail {

// Name of the first moment that belongs to this second moment; nothing for a first moment.
inline std::optional<std::string> first_of_second(std::string_view name) {
    if (!name.starts_with(optimizer_tensor::second_moment)) return std::nullopt;
    return std::string(optimizer_tensor::first_moment) +
           std::string(name.substr(optimizer_tensor::second_moment.size()));
}

}  // namespace detail

/// Fills in a state to resume from: its counters, and its optimizer state from training.safetensors, which must have
/// the same parameters and precision and be finite. A run of AdamW may resume with Muon, which has no second moment,
/// and a run of Muon with AdamW. Hidden matrices then restart with zero state and their own bias corrections: an old
/// first moment with a new second moment would allow steps of any length. Throws errc::model_file and errc::non_finite
/// before changing anything.
inline void restore_training(std::string const& directory, training_state& state) {
    auto const record = read_record(directory);
    auto const file = safetensors_file::open(in_directory(directory, optimizer_state_file));
    bool const had_muon = value_of(record.recipe, "muon") != nullptr;
    std::set<std::string> begin_again;
    std::size_t known = 0;
    for (auto const& m : state.optimizer_state) {
        auto const first = detail::first_of_second(m.name);
        if (had_muon && first && file.find(m.name) == nullptr) {
            begin_again.insert({m.name, *first});
            continue;
        }
        auto const& stored = file.at(m.name);
        auto const type = m.element == sizeof(double) ? stored_type::f64 : stored_type::f32;
        if (stored.type != type || stored.bytes.size() != m.whole)
            detail::fail_at(stored, file.path(),
                            sentence("expected ", m.whole / m.element, " elements of type ", name_of(type),
                                     ", found shape ", text_of(stored.shape), " of type ", name_of(stored.type),
                                     "; the checkpoint belongs to another model"));
        require_finite(stored, file.path());
        ++known;
    }
    auto const is_wanted = [&](std::string_view name) {
        return std::ranges::any_of(state.optimizer_state, [&](auto const& m) { return m.name == name; });
    };
    for (auto const& stored : file.tensors()) {
        auto const first = detail::first_of_second(stored.name);
        if (first && !is_wanted(stored.name) && is_wanted(*first)) ++known;
    }
    if (file.tensors().size() != known)
        throw error(errc::model_file, file.path(), "",
                    sentence("expected ", known, " tensors, found ", file.tensors().size(),
                             "; the checkpoint belongs to another model"));
    for (auto const& m : state.optimizer_state)
        if (begin_again.contains(m.name))
            std::ranges::fill(m.bytes, std::byte{});
        else
            std::ranges::copy(file.at(m.name).bytes.subspan(m.begin, m.bytes.size()), m.bytes.begin());
    state.step = record.state.step;
    state.updates = record.state.updates;
    state.hidden_from = begin_again.empty() ? record.state.hidden_from : record.state.updates;
    state.first_phase_steps = record.state.first_phase_steps;
    state.skipped = record.state.skipped;
    state.seconds = record.state.seconds;
}

}  // namespace calm
