#include "comparison.hpp"

#include <algorithm>

#include "calm/base/quoted.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

// The tokenizer's fingerprint, or the model's directory if it has none, so that it matches no other model.
std::string tokenizer_digest(compared_model const& one) {
    auto const& calm = one.model.description.calm;
    return calm && calm->tokenizer ? calm->tokenizer->fingerprint : one.model.directory;
}

std::string with_error(char const* format, std::optional<double> const& value, std::optional<double> const& error) {
    if (!value) return "-";
    return formatted(format, *value) + (error ? " +- " + formatted(format, *error) : "");
}

std::string kind_of(stored_model const& model) {
    auto const& d = model.description;
    switch (d.kind) {
    case model_kind::autoencoder:
        return "autoencoder";
    case model_kind::autoregressive:
        return "autoregressive";
    default:
        return formatted("CALM, K %lld, ", static_cast<long long>(model.sizes.autoencoder.patch_size)) +
               std::string(d.head.name());
    }
}

}  // namespace

std::string comparison_text(std::vector<compared_model> const& models) {
    std::size_t longest = 5;
    for (auto const& one : models) longest = std::max(longest, printable_line(one.model.directory).size());
    auto const padded = [&](std::string name) { return name + std::string(longest - name.size(), ' '); };
    std::string text =
        padded("model") + formatted("  %-20s %18s %16s %20s\n", "kind", "Brier-1", "BrierLM", "bits per byte");
    bool others = false;
    for (auto const& one : models) {
        auto const& e = one.found;
        bool const comparable = tokenizer_digest(one) == tokenizer_digest(models.front());
        others = others || !comparable;
        bool const scored = comparable && e.brier;
        text +=
            padded(printable_line(one.model.directory)) +
            formatted(
                "  %-20s %18s %16s %20s\n", kind_of(one.model).c_str(),
                with_error("%.4f", scored ? std::optional((*e.brier)[0]) : std::nullopt,
                           scored && e.brier_se ? std::optional((*e.brier_se)[0]) : std::nullopt)
                    .c_str(),
                with_error("%.2f", scored ? e.brier_lm : std::nullopt, scored ? e.brier_lm_se : std::nullopt).c_str(),
                with_error("%.4f", e.bits_per_byte, e.bits_per_byte_se).c_str());
    }
    if (others)
        text += "Token scores compare only models with the same tokenizer: they are left out for models with another "
                "tokenizer than the first\n";
    text.pop_back();
    return text;
}

}  // namespace calm::apps
