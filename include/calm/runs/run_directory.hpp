#pragma once
/// \file
/// The directory of a run: a model directory that training writes, with checkpoints to resume from.
///
///     config.json, model.safetensors, ...   the newest model, as published
///     checkpoints/step-00000400/            complete, with a manifest (checkpoint.hpp)
///     best                                  link to the checkpoint with the best score
///     run.lock                              held by the process that trains
///
/// A checkpoint is written next to its place, flushed, listed in a manifest and renamed: it is complete or absent. The
/// model of the directory is replaced file by file; meanwhile `replaced-by` names its checkpoint (whole_directory).
///
///     run_directory run("model");
///     auto const from = run.newest();
///     if (from) load_model(read_model_description(from->directory), model), blocks.seek(from->record.data);
///     training_callbacks callbacks;
///     callbacks.resume = [&](training_state& state) { if (from) restore_training(from->directory, state); };
///     callbacks.checkpoint = [&](training_state const& state, state_after) {
///         run.save({state, seed, blocks.position()}, [&](std::string const& d) { save_model(d, model, description);
///         });
///     };
///     train_calm(ctx, model, blocks, recipe, callbacks);
/// \shows{tests/runs/run_directory_test.cpp,scores_on_other_text_do_not_compare}

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/io/detail/replaced_directory.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/runs/checkpoint.hpp"
#include "calm/runs/detail/directory_lock.hpp"
#include "calm/runs/detail/manifest.hpp"

namespace calm {

/// A complete checkpoint.
struct found_checkpoint {
    std::string directory;     ///< its path
    checkpoint_record record;  ///< contents of its state.json
};

/// One process holds it at a time, until the object is destroyed or the process ends in any way.
class run_directory {
public:
    /// Writes the files of a model directory to a path that does not exist yet, e.g. with save_model.
    using write_model = std::function<void(std::string const& directory)>;

    /// Whether a run could begin or resume at a path: nothing is there, or an empty directory, or a run.
    static bool can_hold(std::string const& path) {
        namespace fs = std::filesystem;
        std::error_code ignored;
        if (!fs::exists(fs::symlink_status(path, ignored))) return true;
        return fs::is_directory(path, ignored) && (fs::is_empty(path, ignored) || holds_run(path));
    }
    /// Whether a run has begun at a path.
    static bool holds_run(std::string const& path) {
        std::error_code ignored;
        return std::filesystem::exists(std::filesystem::path(path) / lock_name, ignored);
    }

    /// Opens or creates the directory of a run and removes the remains of an interrupted save. Throws errc::storage if
    /// something else is there, or another process holds it.
    explicit run_directory(std::string path) : path_(std::move(path)), was_there_(is_there(path_)) {
        if (!can_hold(path_))
            throw error(errc::storage, path_, "",
                        "already exists and holds no run to resume; choose another path, or remove it");
        make_directories(path_);
        lock_.emplace(path_, lock_name);
        if (std::error_code unknown; std::filesystem::is_symlink(checkpoints(), unknown))
            throw error(
                errc::storage, checkpoints(), "",
                "is a link, which is not followed: the checkpoints there may belong to another run; put the folder "
                "itself there");
        make_directories(checkpoints());
        if (auto const newer = whole_directory(path_); newer != path_) publish(newer);  // interrupted
        remove_leftovers();
    }

    [[nodiscard]] std::string const& path() const { return path_; }  ///< as opened
    /// Path of a file in the directory.
    [[nodiscard]] std::string path(std::string_view file) const { return in_directory(path_, file); }

    /// The newest complete checkpoint, or nothing if none was written yet. `log` receives a message about each newer,
    /// damaged one. Throws errc::storage if there are checkpoints but none is complete.
    [[nodiscard]] std::optional<found_checkpoint>
    newest(std::function<void(std::string const&)> const& log = nullptr) const {
        auto const all = steps();
        for (auto const step : all) {
            auto const directory = directory_of(step);
            auto damage = damage_of(directory);
            try {
                if (!damage) {
                    auto record = read_record(directory);
                    if (record.state.step == step) return found_checkpoint{directory, std::move(record)};
                    damage = directory + ": holds step " + std::to_string(record.state.step);
                }
            } catch (error const& problem) {
                damage = problem.what();
            }
            if (log) log(*damage);
        }
        if (all.empty()) return std::nullopt;
        throw error(
            errc::storage, checkpoints(), "",
            sentence("none of its ", all.size(), " checkpoints is intact; put an intact one back, or start a new run"));
    }

    /// Writes a checkpoint with its manifest and publishes its model in the directory. Afterwards only the `keep`
    /// newest checkpoints and the best one remain. Throws errc::storage and then leaves the earlier checkpoints
    /// unchanged.
    void save(checkpoint_record const& record, write_model const& write, std::size_t keep = 2) {
        auto const place = directory_of(record.state.step);
        auto const part = place + ".new";
        remove(part);
        try {
            write(part);
            write_training(part, record);
            write_manifest(part);
            detail::flush_directory(part);
            detail::put_directory(part, place);
        } catch (...) {
            remove_leftovers();  // the disk may be full
            throw;
        }
        publish(place);
        prune(record.state.step, std::max<std::size_t>(keep, 1));
        remove_leftovers();
    }

    /// Best score of the checkpoints up to step `until`, if one has a score.
    [[nodiscard]] std::optional<double> best_score(index_t until = std::numeric_limits<index_t>::max()) const {
        auto const best = best_of(steps(), until);
        return best ? read_record(directory_of(*best)).score : std::nullopt;
    }

    /// Makes the model of a checkpoint the model of the directory, with hard links or copies. If it is interrupted,
    /// readers see either the old or the new model. Throws errc::storage.
    void publish(std::string const& checkpoint) const {
        namespace fs = std::filesystem;
        auto names = detail::names_in(checkpoint);
        std::erase_if(names, [&](std::string const& name) {
            std::error_code absent;
            return name == manifest_file || name == state_file || name == optimizer_state_file ||
                   fs::equivalent(in_directory(checkpoint, name), path(name), absent);
        });
        auto const mark = path(successor_file);
        if (!names.empty())
            replace_file(mark, (fs::path("checkpoints") / fs::path(checkpoint).filename()).string());
        else if (!is_there(mark))
            return;
        for (auto const& name : names) put_file(in_directory(checkpoint, name), path(name));
        for (auto const name : {config_file, weights_file, bigram_file})  // left by another kind of model
            if (!is_there(in_directory(checkpoint, name))) remove(path(name));
        detail::flush_directory(path_);
        remove(mark);
    }

    /// Removes the checkpoints, and the named files of the directory: the run starts over. The model stays until the
    /// first new checkpoint. Throws errc::storage.
    void clear(std::vector<std::string> const& files) {
        remove(path(best_name));
        for (auto const step : steps()) detail::rename_path(directory_of(step), directory_of(step) + ".old");
        remove_leftovers();
        for (auto const& file : files) remove(path(file));
    }

    /// Discards a run that has no checkpoint: removes these files, everything that this class made, and the directory,
    /// if it was made here and is empty.
    void discard(std::vector<std::string> const& files) const {
        std::error_code ignored;
        if (!std::filesystem::remove(checkpoints(), ignored)) return;
        for (auto const& file : files) std::filesystem::remove(path(file), ignored);
        std::filesystem::remove(path(lock_name), ignored);
        if (!was_there_) std::filesystem::remove(path_, ignored);
    }

private:
    static constexpr std::string_view lock_name = "run.lock";
    static constexpr std::string_view best_name = "best";
    static constexpr std::string_view prefix = "step-";

    [[nodiscard]] std::string checkpoints() const { return path("checkpoints"); }
    [[nodiscard]] std::string directory_of(index_t step) const {
        auto const digits = std::to_string(step);
        return in_directory(checkpoints(), std::string(prefix) +
                                               std::string(8 - std::min<std::size_t>(8, digits.size()), '0') + digits);
    }

    static void remove(std::string const& path) {
        std::error_code failed;
        std::filesystem::remove_all(path, failed);
        if (failed) throw error(errc::storage, path, "", "cannot be removed: " + failed.message());
    }
    static void put_file(std::string const& from, std::string const& to) {
        auto const part = to + ".partial";
        remove(part);
        if (::link(from.c_str(), part.c_str()) == 0) return detail::rename_path(part, to);
        replace_file(to, mapped_file::open(from).text());  // for file systems without hard links
    }

    // Steps of all checkpoints, newest first; other names are ignored.
    [[nodiscard]] std::vector<index_t> steps() const {
        std::vector<index_t> all;
        for (auto const& name : detail::names_in(checkpoints())) {
            index_t step = 0;
            if (!name.starts_with(prefix)) continue;
            auto const* const end = name.data() + name.size();
            auto const [stop, code] = std::from_chars(name.data() + prefix.size(), end, step);
            if (code == std::errc{} && stop == end && step >= 0 &&
                in_directory(checkpoints(), name) == directory_of(step))
                all.push_back(step);
        }
        std::sort(all.begin(), all.end(), std::greater<>());
        return all;
    }

    // Removes incomplete and replaced checkpoints: step-00000400.new and similar names.
    void remove_leftovers() const {
        std::error_code ignored;
        for (auto const& name : detail::names_in(checkpoints(), ignored))
            if (name.starts_with(prefix) && name.find('.') != std::string::npos)
                std::filesystem::remove_all(in_directory(checkpoints(), name), ignored);
    }

    // Renames before removing: a half-removed checkpoint must not count as damaged. Checkpoints after this step are
    // abandoned.
    void prune(index_t step, std::size_t keep) {
        auto all = steps();
        auto const best = best_of(all, step);
        std::size_t newer = 0;
        for (auto const each : all) {
            bool const stays = each <= step && (newer++ < keep || each == best);
            if (!stays) detail::rename_path(directory_of(each), directory_of(each) + ".old");
        }
        if (!best) return;
        auto const link = path(best_name);
        std::error_code failed;
        std::filesystem::remove(link + ".partial", failed);
        std::filesystem::create_directory_symlink(std::filesystem::path("checkpoints") /
                                                      std::filesystem::path(directory_of(*best)).filename(),
                                                  link + ".partial", failed);
        if (!failed) detail::rename_path(link + ".partial", link);  // no link on file systems without links
    }

    // Step of the highest score up to step `until`, among checkpoints comparable with the newest; the oldest of equals.
    [[nodiscard]] std::optional<index_t> best_of(std::vector<index_t> const& all, index_t until) const {
        std::optional<index_t> best;
        double most = 0;
        std::optional<recipe_record> present;
        for (auto const step : all) try {
                if (step > until) continue;
                auto const record = read_record(directory_of(step));
                if (!present) present = record.recipe;
                if (record.score && same_measure(record.recipe, *present) && (!best || *record.score >= most))
                    best = step, most = *record.score;
            } catch (error const&) {
                continue;  // damaged: not the best
            }
        return best;
    }

    std::string path_;
    bool was_there_;
    std::optional<directory_lock> lock_;
};

}  // namespace calm
