#include "run/seen_text.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/text/documents.hpp"
#include "program.hpp"

namespace calm::apps {

namespace {

// The files of SPECs in order, as absolute paths. A SPEC whose files are gone is taken for a path itself.
std::vector<std::string> files_named_by(std::vector<std::string> const& specs) {
    std::vector<std::string> all;
    auto const add = [&](std::string const& path) {
        std::error_code unknown;
        auto const whole = std::filesystem::weakly_canonical(path, unknown).string();
        all.push_back(whole.empty() ? path : whole);
    };
    for (auto const& spec : specs) {
        try {
            auto const source = document_source::parse(spec);
            for (auto const& file : source.files()) add(file);
        } catch (error const&) {
            add(spec);
        }
    }
    return all;
}

bool have_stories(std::vector<std::string> const& specs) {
    return std::any_of(specs.begin(), specs.end(), [](auto const& spec) { return spec.starts_with("stories:"); });
}

// The stories or the first file with documents that were trained on, or "".
std::string seen_text(data_description const& trained, data_options const& data) {
    bool const same_holdout = !data.holdout.empty() && data.holdout == trained.holdout;
    // Without a holdout, other stories are generated for evaluation.
    if (!data.holdout.empty() && !same_holdout && have_stories(trained.sources) && have_stories(data.sources) &&
        data.data_seed.value_or(trained.data_seed) == trained.data_seed)
        return "stories";
    auto const was = files_named_by(trained.sources);
    auto const now = files_named_by(data.sources);
    // Documents are numbered across files: a holdout selects the same ones only up to the first file that differs.
    auto const first = same_holdout ? std::mismatch(now.begin(), now.end(), was.begin(), was.end()).first : now.begin();
    std::unordered_set<std::string_view> const files(was.begin(), was.end());
    auto const seen = std::find_if(first, now.end(), [&](auto const& file) { return files.contains(file); });
    return seen == now.end() ? "" : std::filesystem::path(*seen).filename().string();
}

// The warning about `seen`, which `model` was trained on.
std::string seen_text_sentence(std::string const& model, data_description const& trained, data_options const& data,
                               std::string const& seen) {
    auto const begin = model + " was trained on " + seen;
    if (trained.holdout.empty())
        return begin + ": the score is of text that the model has seen; give another text, or train with --holdout";
    return begin + " with --holdout " + trained.holdout + ": the score is of text that the model has seen; give " +
           (trained.holdout == data.holdout ? "the same files in the same order" : "--holdout " + trained.holdout) +
           ", or another text";
}

}  // namespace

void log_seen_text(stored_model const& model, data_options const& data) {
    if (!model.description.calm || !model.description.calm->data) return;
    auto const& trained = *model.description.calm->data;
    auto const seen = seen_text(trained, data);
    if (!seen.empty()) log_line(seen_text_sentence(model.directory, trained, data, seen));
}

}  // namespace calm::apps
