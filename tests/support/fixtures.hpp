#pragma once
// Access to the PyTorch reference values. The folder is $CALM_FIXTURES, else tests/fixtures (CALM_FIXTURES_DIR, set by
// the build).

#include <simdjson.h>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/io/safetensors.hpp"
#include "support/close.hpp"

namespace calm::test {

inline std::filesystem::path fixtures_folder() {
    if (char const* const folder = std::getenv("CALM_FIXTURES"); folder != nullptr && *folder != '\0') return folder;
    return CALM_FIXTURES_DIR;
}

// The directory of a published model, e.g. checkpoint("base", "calm_sharded").
inline std::string checkpoint(char const* variant, char const* name) {
    return (fixtures_folder() / variant / "checkpoints" / name).string();
}

// One file of fixtures, e.g. fixture("base", "energy_score"). A missing name or key throws.
class fixture {
public:
    fixture(std::string_view variant, std::string_view name) :
        file_(safetensors_file::open((fixtures_folder() / variant / (std::string(name) + ".safetensors")).string())) {
        auto const text = file_.metadata().find("config");
        config_ = parser_.parse(text == file_.metadata().end() ? std::string("{}") : text->second);
    }

    fixture(fixture const&) = delete;
    fixture& operator=(fixture const&) = delete;

    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (auto const& tensor : file_.tensors()) all.push_back(tensor.name);
        return all;
    }
    [[nodiscard]] bool has(std::string_view name) const { return file_.find(name) != nullptr; }
    [[nodiscard]] std::vector<index_t> shape(std::string_view name) const { return file_.at(name).shape; }

    // The elements of a tensor, row-major. Tokens and masks (0 or 1) are integers and converted to the requested type.
    template <class T = float> [[nodiscard]] std::vector<T> floats(std::string_view name) const {
        auto const& tensor = file_.at(name);
        std::vector<T> values(tensor.count());
        file_.read_into(tensor, std::span<T>(values));
        return values;
    }
    template <class T = std::int64_t> [[nodiscard]] std::vector<T> integers(std::string_view name) const {
        std::vector<T> values;
        for (auto const value : file_.integers(file_.at(name))) values.push_back(static_cast<T>(value));
        return values;
    }

    // The only element of a tensor.
    [[nodiscard]] double scalar(std::string_view name) const { return floats<double>(name).at(0); }

    // Values of the file's configuration by key; "ae/latent_size" reaches into an object, "betas/0" into a list.
    [[nodiscard]] std::int64_t size(std::string_view key) const { return at(key).get_int64().value(); }
    [[nodiscard]] double real(std::string_view key) const { return at(key).get_double().value(); }
    [[nodiscard]] std::string text(std::string_view key) const { return std::string(at(key).get_string().value()); }
    [[nodiscard]] bool configured(std::string_view key) const {
        return config_.at_pointer("/" + std::string(key)).error() == simdjson::SUCCESS;
    }

    [[nodiscard]] safetensors_file const& file() const noexcept { return file_; }

private:
    [[nodiscard]] simdjson::dom::element at(std::string_view key) const {
        return config_.at_pointer("/" + std::string(key)).value();
    }

    safetensors_file file_;
    simdjson::dom::parser parser_;
    simdjson::dom::element config_;
};

}  // namespace calm::test
