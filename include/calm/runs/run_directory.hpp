#pragma once
// The directory of a run: a model directory that training writes, with the checkpoints that it goes on from.
//
//   config.json, model.safetensors, ...   the newest model, as published
//   checkpoints/step-00000400/            complete, with a manifest (checkpoint.hpp)
//   best                                  leads to the checkpoint of the best score
//   run.lock                              held by the process that trains
//
// A checkpoint is written beside its place, flushed, described by its manifest and renamed: it is whole or not there. A
// model becomes that of the directory file by file; meanwhile `replaced-by` leads to its checkpoint (whole_directory).
//
//   run_directory run("model");
//   auto const from = run.newest();
//   if (from) load_calm(read_model_description(from->directory), model), blocks.seek(from->record.data);
//   training_callbacks tell;
//   tell.resume = [&](training_state& state) { if (from) restore_training(from->directory, state); };
//   tell.checkpoint = [&](training_state const& state, state_after) {
//       run.save({state, seed, blocks.position()}, [&](std::string const& d) { save_calm(d, model, description); });
//   };
//   train_calm(ctx, model, blocks, recipe, tell);

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

#include "calm/io/replaced_directory.hpp"
#include "calm/io/whole_directory.hpp"
#include "calm/runs/checkpoint.hpp"
#include "calm/runs/directory_lock.hpp"
#include "calm/runs/manifest.hpp"

namespace calm {

// A checkpoint that was found whole.
struct found_checkpoint {
    std::string directory;     // where it lies
    checkpoint_record record;  // what its state.json says
};

// One process holds it at a time, until the object is gone or the process has died, however it died.
class run_directory {
public:
    // Writes the files of a model directory to a path where nothing stands, e.g. with save_calm.
    using write_model = std::function<void(std::string const& directory)>;

    // Whether a run could begin or go on at a path: nothing is there, or an empty directory, or a run.
    static bool can_hold(std::string const& path) {
        namespace fs = std::filesystem;
        std::error_code ignored;
        if (!fs::exists(fs::symlink_status(path, ignored))) return true;
        return fs::is_directory(path, ignored) && (fs::is_empty(path, ignored) || holds_run(path));
    }
    // Whether a run has begun there.
    static bool holds_run(std::string const& path) {
        std::error_code ignored;
        return std::filesystem::exists(std::filesystem::path(path) / lock_name, ignored);
    }

    // Opens the directory of a run, or makes it, and what an interrupted saving left is removed. Throws errc::storage
    // where something else stands, or another process holds it.
    explicit run_directory(std::string path) : path_(std::move(path)), was_there_(is_there(path_)) {
        if (!can_hold(path_))
            throw error(errc::storage, path_, "",
                        "is there already and holds no run to go on with; choose another path, or remove it");
        make_directories(path_);
        lock_.emplace(path_, lock_name);
        if (std::error_code unknown; std::filesystem::is_symlink(checkpoints(), unknown))
            throw error(errc::storage, checkpoints(), "",
                        "is a link, which is not followed: the checkpoints there may be of another run; put the folder "
                        "itself there");
        make_directories(checkpoints());
        if (auto const newer = whole_directory(path_); newer != path_) publish(newer);  // interrupted
        remove_leftovers();
    }

    [[nodiscard]] std::string const& path() const { return path_; }  // as it was opened
    // Where a file of it lies.
    [[nodiscard]] std::string path(std::string_view file) const { return in_directory(path_, file); }

    // The newest checkpoint that is whole, and nothing where none was written yet. `tell` hears of each newer one that
    // is not, in a sentence. Throws errc::storage where there are some, but none is whole.
    [[nodiscard]] std::optional<found_checkpoint>
    newest(std::function<void(std::string const&)> const& tell = nullptr) const {
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
            if (tell) tell(*damage);
        }
        if (all.empty()) return std::nullopt;
        throw error(errc::storage, checkpoints(), "",
                    sentence("none of its ", all.size(),
                             " checkpoints is whole; put a good one back, or start the run afresh"));
    }

    // Writes a checkpoint with its manifest, and the model in it becomes that of the directory. Then the `keep` newest
    // checkpoints and the best one remain. Throws errc::storage; the checkpoints before are then as they were.
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

    // The best score of its checkpoints up to a step, if one has a score.
    [[nodiscard]] std::optional<double> best_score(index_t until = std::numeric_limits<index_t>::max()) const {
        auto const best = best_of(steps(), until);
        return best ? read_record(directory_of(*best)).score : std::nullopt;
    }

    // Makes the model of one of its checkpoints that of the directory: the same files under a second name, or copies.
    // Whatever interrupts it, a reader meets the old model or the new one. Throws errc::storage.
    void publish(std::string const& checkpoint) const {
        namespace fs = std::filesystem;
        auto names = detail::names_in(checkpoint);
        std::erase_if(names, [&](std::string const& name) {
            std::error_code absent;
            return name == manifest_file || name == state_file || name == moments_file ||
                   fs::equivalent(in_directory(checkpoint, name), path(name), absent);
        });
        auto const mark = path(successor_file);
        if (!names.empty())
            replace_file(mark, (fs::path("checkpoints") / fs::path(checkpoint).filename()).string());
        else if (!is_there(mark))
            return;
        for (auto const& name : names) put_file(in_directory(checkpoint, name), path(name));
        for (auto const name : {config_file, weights_file, bigram_file})  // of another kind of model
            if (!is_there(in_directory(checkpoint, name))) remove(path(name));
        detail::flush_directory(path_);
        remove(mark);
    }

    // Removes the checkpoints and, of the files beside them, those named: the run starts over. The model stays until
    // the first new checkpoint. Throws errc::storage.
    void clear(std::vector<std::string> const& files) {
        remove(path(best_name));
        for (auto const step : steps()) detail::rename_path(directory_of(step), directory_of(step) + ".old");
        remove_leftovers();
        for (auto const& file : files) remove(path(file));
    }

    // Of a run that has no checkpoint nothing stays: these files beside are removed, what this class made, and the
    // directory, where it was made here and nothing else is in it.
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
        replace_file(to, mapped_file::open(from).text());  // where the file system has no second names
    }

    // The steps of all checkpoints, the newest first. Other names do not count.
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

    // Parts of checkpoints, and checkpoints that were replaced: step-00000400.new and the like.
    void remove_leftovers() const {
        std::error_code ignored;
        for (auto const& name : detail::names_in(checkpoints(), ignored))
            if (name.starts_with(prefix) && name.find('.') != std::string::npos)
                std::filesystem::remove_all(in_directory(checkpoints(), name), ignored);
    }

    // Renamed first: one that is half removed is no damaged checkpoint. What is newer than this step was given up.
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
        if (!failed) detail::rename_path(link + ".partial", link);  // where the file system has no links there is none
    }

    // The step of the highest score up to a step, of those that compare with the newest; of equal ones the oldest.
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
