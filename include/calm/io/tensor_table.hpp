#pragma once
/// \file
/// Tensors by name, whatever files hold them: the form in which weights are read.
/// \shows{tests/io/int8_tensors_test.cpp,floats_of}

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/bounded_reader.hpp"
#include "calm/io/detail/stored_tensor.hpp"

namespace calm {

/// The tensors of one or several files, in file order. The creator of a table keeps the bytes alive.
class tensor_table {
public:
    /// The reader of the format has ensured unique names. Errors name the table `path`.
    tensor_table(std::string path, std::vector<stored_tensor> tensors, std::map<std::string, std::string> metadata) :
        path_(std::move(path)), tensors_(std::move(tensors)), metadata_(std::move(metadata)) {
        for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
    }

    [[nodiscard]] std::string const& path() const noexcept { return path_; }  ///< name of the table in errors
    /// In file order.
    [[nodiscard]] std::span<stored_tensor const> tensors() const noexcept { return tensors_; }
    /// Metadata of all files.
    [[nodiscard]] std::map<std::string, std::string> const& metadata() const noexcept { return metadata_; }

    /// The tensor of a name, or null.
    [[nodiscard]] stored_tensor const* find(std::string_view name) const {
        auto const found = index_.find(name);
        return found == index_.end() ? nullptr : &tensors_[found->second];
    }

    /// The tensor of a name. Throws errc::model_file if there is none.
    [[nodiscard]] stored_tensor const& at(std::string_view name) const {
        auto const* const found = find(name);
        if (found == nullptr)
            throw error(errc::model_file, path(), "",
                        "expected a tensor " + in_quotes(name) + ", found none among its " +
                            std::to_string(tensors_.size()));
        return *found;
    }

    /// All elements of a floating-point tensor, as read_into in stored_tensor.hpp; errors name the table.
    template <class T> void read_into(stored_tensor const& tensor, std::span<T> to) const {
        calm::read_into(tensor, to, path());
    }
    /// All elements of an integer tensor, as integers_of in stored_tensor.hpp.
    [[nodiscard]] std::vector<std::int64_t> integers(stored_tensor const& tensor) const {
        return integers_of(tensor, path());
    }

private:
    std::string path_;
    std::vector<stored_tensor> tensors_;
    std::map<std::string, std::size_t, std::less<>> index_;
    std::map<std::string, std::string> metadata_;
};

}  // namespace calm
