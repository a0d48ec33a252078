#include "run/rank_agreement.hpp"

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "calm/base/detail/checksum.hpp"
#include "calm/base/detail/file.hpp"
#include "calm/ranks/detail/message.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/text/bigram.hpp"
#include "program.hpp"
#include "registry.hpp"
#include "run/ranks.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

constexpr int last_code = static_cast<int>(errc::device);
constexpr std::uint64_t longest_why = 1 << 20;  // bytes

std::span<std::byte const> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}
std::string text_of(checksum const& sum) {
    return formatted("%016llx", static_cast<unsigned long long>(sum.value()));
}

// A checksum of the names and values of all tensors; it detects accidents, not attacks.
std::string sum_of_weights(stored_model const& model) {
    checksum sum;
    for (auto const* one = &model; one != nullptr; one = one->autoencoder.get())
        for (auto const& tensor : one->weights->tensors()) {
            sum.add(bytes_of(tensor.name));
            sum.add(tensor.bytes);
        }
    return text_of(sum);
}
std::string sum_of_file(std::string const& path) {
    if (!is_there(path)) return "none";
    checksum sum;
    auto const file = mapped_file::open(path, errc::model_file);
    sum.add(bytes_of(file.text()));
    return text_of(sum);
}

}  // namespace

void set_threads_and_timeout(execution_options& options) {
    options.threads = threads_of_rank(options.threads);
    if (auto* const all = ranks(); all != nullptr) all->timeout = static_cast<double>(options.timeout);
}

void agree(std::function<std::vector<setting>()> const& read) {
    auto* const all = ranks();
    if (all == nullptr) return static_cast<void>(read());
    std::vector<setting> own;
    std::exception_ptr why;
    message_writer said;
    try {
        own = read();
        said.add(std::int32_t{0});
    } catch (error const& wrong) {
        why = std::current_exception();
        said.add(static_cast<std::int32_t>(wrong.code()));
        said.add_text(std::string_view(wrong.what()).substr(0, longest_why / 2));
    }
    auto const heard = gather_messages(*all, said.bytes(), longest_why);
    for (int r = 0; r < heard.ranks(); ++r) {
        auto from = heard.read(r, "the answer");
        auto const code = from.number<std::int32_t>("a code of an error", 0, last_code);
        if (code == 0) continue;
        auto const known = code >= static_cast<int>(errc::usage) ? static_cast<errc>(code) : errc::distributed;
        if (r == all->rank()) std::rethrow_exception(why);
        auto const lines = lines_of(from.text("bytes of an error"));
        auto const first = lines.empty() ? "" : lines.front();
        throw error(known, "rank " + std::to_string(r) + ": " + first, std::span(lines).subspan(lines.empty() ? 0 : 1));
    }
    calm::require_same_settings(*all, own);
}

void require_shared(std::string const& path) {
    if (ranks() == nullptr) return;
    auto const theirs = text_of_first_rank([&] { return sum_of_file(path); });
    agree([&] {
        auto const ours = sum_of_file(path);
        if (ours != theirs)
            throw error(errc::distributed,
                        sentence("--out: expected ", path, " as rank 0 has it, found ",
                                 ours == "none" ? "none" : "another file",
                                 "; all ranks need the same --out: a folder that every machine sees"));
        return std::vector<setting>();
    });
}

stored_model read_model_on_all_ranks(std::string const& directory) {
    stored_model model;
    set_rank_timeout_active(false);
    agree([&] {
        model = opened_model(directory);
        if (ranks() == nullptr) return std::vector<setting>();
        return std::vector<setting>{{"weights of " + directory, sum_of_weights(model)},
                                    {"config.json of " + directory, sum_of_file(model.path(config_file))},
                                    {"tokenizer of " + directory, sum_of_file(tokenizer_file_of(model))},
                                    {"token counts of " + directory, sum_of_file(model.path(bigram_file))}};
    });
    return model;
}

}  // namespace calm::apps
