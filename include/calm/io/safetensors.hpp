#pragma once
/// \file
/// Tensors in .safetensors files: 8 bytes of header length, a JSON header, then the bytes of all tensors without gaps.
/// \shows{tests/io/safetensors_test.cpp,files_of_the_reference_are_read_and_written_again}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/bounded_reader.hpp"
#include "calm/io/detail/json_object.hpp"
#include "calm/io/detail/rounded_type.hpp"
#include "calm/io/detail/stored_tensor.hpp"
#include "calm/io/tensor_table.hpp"

namespace calm {

namespace detail {

// Parses the header of one file into tensors and metadata; every number is checked against the file.
class safetensors_header {
public:
    safetensors_header(std::span<std::byte const> bytes, std::string const& path) : reader_(bytes, path) {
        auto const length = reader_.little<std::uint64_t>("the length of the header");
        if (length > json_limit::safetensors_header)
            reader_.fail(0, sentence("expected a header of at most ", json_limit::safetensors_header,
                                     " bytes, found a length of ", length, "; it is not a safetensors file"));
        auto const text = reader_.text(length, "a header");
        if (text.empty() || text.front() != '{')
            reader_.fail(8, "expected a header that begins with '{', found " +
                                (text.empty() ? std::string("an empty one") : in_quotes(text.substr(0, 1))) +
                                "; it is not a safetensors file");
        data_ = bytes.subspan(static_cast<std::size_t>(reader_.position()));

        simdjson::dom::parser parser;
        for (auto const [name, value] : json_object(parser, text, json_limit::safetensors_header, path, "byte 8"))
            add(name, value);
        check_spans();
    }

    std::vector<stored_tensor> tensors;
    std::map<std::string, std::string> metadata;

private:
    static std::string found(simdjson::dom::element value) { return in_quotes(simdjson::minify(value)); }

    void add(std::string_view name, simdjson::dom::element value) {
        if (name == "__metadata__") {
            if (has_metadata_) reader_.fail(8, "expected __metadata__ once, found it twice");
            has_metadata_ = true;
            return add_metadata(value);
        }
        if (!names_.emplace(name).second)
            reader_.fail(8, "expected every tensor once, found tensor " + in_quotes(name) + " twice");
        tensors.push_back(read_tensor(name, value));
    }

    void add_metadata(simdjson::dom::element value) {
        simdjson::dom::object object;
        if (value.get(object)) reader_.fail(8, "__metadata__: expected an object of strings, found " + found(value));
        for (auto const [key, entry] : object) {
            std::string_view text;
            if (entry.get(text))
                reader_.fail(8, "__metadata__, key " + in_quotes(key) + ": expected a string, found " + found(entry));
            if (!metadata.emplace(key, text).second)
                reader_.fail(8, "__metadata__: expected every key once, found " + in_quotes(key) + " twice");
        }
    }

    stored_tensor read_tensor(std::string_view name, simdjson::dom::element value) {
        auto const who = "tensor " + in_quotes(name);
        simdjson::dom::object object;
        if (value.get(object))
            reader_.fail(8, who + ": expected an object with dtype, shape and data_offsets, found " + found(value));
        std::optional<simdjson::dom::element> dtype;
        std::optional<simdjson::dom::element> shape;
        std::optional<simdjson::dom::element> offsets;
        for (auto const [key, entry] : object) {
            auto* const slot = key == "dtype"          ? &dtype
                               : key == "shape"        ? &shape
                               : key == "data_offsets" ? &offsets
                                                       : nullptr;
            if (slot == nullptr) continue;
            if (*slot) reader_.fail(8, who + ": expected the key " + in_quotes(key) + " once, found it twice");
            *slot = entry;
        }
        if (!dtype) reader_.fail(8, who + ": expected a key 'dtype', found none");
        if (!shape) reader_.fail(8, who + ": expected a key 'shape', found none");
        if (!offsets) reader_.fail(8, who + ": expected a key 'data_offsets', found none");

        stored_tensor tensor{std::string(name), read_type(who, *dtype), read_shape(who, *shape), {}};
        auto const [begin, end] = read_offsets(who, *offsets);
        auto const size = bytes_of(tensor.type, tensor.shape);
        auto const sizes = std::string(name_of(tensor.type)) + " " + text_of(tensor.shape);
        if (!size) reader_.fail(8, who + ": expected a shape whose size in bytes fits 64 bits, found " + sizes);
        if (*size != end - begin)
            reader_.fail(8, who + ": expected data_offsets of the " + std::to_string(*size) + " bytes of " + sizes +
                                ", found " + std::to_string(end - begin) + " bytes");
        tensor.bytes = data_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        return tensor;
    }

    stored_type read_type(std::string const& who, simdjson::dom::element value) const {
        std::string_view name;
        if (value.get(name)) reader_.fail(8, who + ": expected a string as dtype, found " + found(value));
        for (auto const& facts : stored_types)
            if (facts.name == name) return facts.type;
        reader_.fail(8, who + ": expected a dtype among BOOL, U8 to U64, I8 to I64, F16, BF16, F32 and F64, found " +
                            in_quotes(name));
    }

    std::vector<index_t> read_shape(std::string const& who, simdjson::dom::element value) const {
        simdjson::dom::array sizes;
        if (value.get(sizes)) reader_.fail(8, who + ": expected a list of sizes as shape, found " + found(value));
        std::vector<index_t> shape;
        for (auto const entry : sizes) {
            std::int64_t size = 0;
            if (entry.get(size) || size < 0)
                reader_.fail(8,
                             who + ": expected sizes that are integers of at least 0 as shape, found " + found(entry));
            shape.push_back(size);
        }
        return shape;
    }

    std::pair<std::uint64_t, std::uint64_t> read_offsets(std::string const& who, simdjson::dom::element value) const {
        simdjson::dom::array pair;
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
        if (value.get(pair) || pair.size() != 2 || pair.at(0).get(begin) || pair.at(1).get(end))
            reader_.fail(8, who + ": expected two integers of at least 0 as data_offsets, found " + found(value));
        if (begin > end)
            reader_.fail(8, who + ": expected data_offsets that begin before they end, found " + std::to_string(begin) +
                                " and " + std::to_string(end));
        if (end > data_.size())
            reader_.fail(reader_.size(), who + ": expected its end within " + std::to_string(data_.size()) +
                                             " bytes of data, found it at byte " + std::to_string(end) +
                                             " of them; the file is cut short or its header is wrong");
        return {begin, end};
    }

    // Requires that the tensors cover the data from first to last byte, each byte once.
    void check_spans() const {
        std::vector<stored_tensor const*> order;
        for (auto const& tensor : tensors) order.push_back(&tensor);
        std::sort(order.begin(), order.end(), [](auto const* a, auto const* b) {
            return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
        });
        std::uint64_t covered = 0;
        for (auto const* tensor : order) {
            auto const begin = static_cast<std::uint64_t>(tensor->bytes.data() - data_.data());
            if (begin < covered)
                reader_.fail(reader_.position() + begin, "expected tensors that do not overlap, found tensor " +
                                                             in_quotes(tensor->name) + " in the one before it");
            if (begin > covered)
                reader_.fail(reader_.position() + covered, "expected tensor " + in_quotes(tensor->name) +
                                                               " here, found " + std::to_string(begin - covered) +
                                                               " bytes that belong to no tensor");
            covered = begin + tensor->bytes.size();
        }
        if (covered < data_.size())
            reader_.fail(reader_.position() + covered, "expected the end of the file after the last tensor, found " +
                                                           std::to_string(data_.size() - covered) +
                                                           " bytes that belong to no tensor");
    }

    bounded_reader reader_;
    std::span<std::byte const> data_;
    std::set<std::string, std::less<>> names_;
    bool has_metadata_ = false;
};

}  // namespace detail

/// An open .safetensors file: its tensors in header order, and its metadata. The bytes stay in the file until they are
/// read. Move-only; tensors and their bytes are valid as long as it lives.
class safetensors_file : public tensor_table {
public:
    /// Throws errc::model_file with the path and the byte unless every byte of the file is accounted for.
    static safetensors_file open(std::string const& path) {
        auto file = mapped_file::open(path, errc::model_file);
        detail::safetensors_header header(file.bytes(), path);
        return {std::move(file), std::move(header)};
    }

private:
    safetensors_file(mapped_file file, detail::safetensors_header header) :
        tensor_table(file.path(), std::move(header.tensors), std::move(header.metadata)), file_(std::move(file)) {}

    mapped_file file_;
};

/// Writes tensors in the given order, atomically, with the header padded to 8 bytes. With `as`, floating-point tensors
/// are rounded to that type on the way (rounded_to). Throws errc::usage for data beyond the format: duplicate names,
/// bytes that do not match the shape, text that is not UTF-8, a header that is too long. Throws errc::non_finite as
/// rounded_to, and errc::storage if writing fails; an existing file then remains.
inline void write_safetensors(std::string const& path, std::span<stored_tensor const> tensors,
                              std::map<std::string, std::string> const& metadata = {},
                              std::optional<stored_type> as = std::nullopt) {
    auto const require_text = [&](std::string const& text) {
        if (!simdjson::validate_utf8(text)) throw error(errc::usage, path, "", in_quotes(text) + " is not UTF-8");
    };
    std::set<std::string_view> names{"__metadata__"};
    std::string header = "{";
    if (!metadata.empty()) {
        header += "\"__metadata__\":{";
        for (auto const& [key, value] : metadata) {
            require_text(key);
            require_text(value);
            header += detail::json_string(key) + ":" + detail::json_string(value) + ",";
        }
        header.back() = '}';
        header += ',';
    }
    std::uint64_t end = 0;
    for (auto const& tensor : tensors) {
        require_text(tensor.name);
        auto const who = "tensor " + in_quotes(tensor.name);
        if (!names.insert(tensor.name).second) throw error(errc::usage, path, "", who + ": its name is taken");
        bool const possible = std::all_of(tensor.shape.begin(), tensor.shape.end(), [](index_t n) { return n >= 0; });
        if (!possible || detail::bytes_of(tensor.type, tensor.shape) != tensor.bytes.size())
            throw error(errc::usage, path, "",
                        who + ": expected the bytes of " + std::string(name_of(tensor.type)) + " " +
                            text_of(tensor.shape) + ", found " + std::to_string(tensor.bytes.size()));
        auto const type = as && detail::is_weight(tensor) ? *as : tensor.type;
        auto const begin = std::exchange(end, end + tensor.count() * bytes_of(type));
        header += detail::json_string(tensor.name) + ":{\"dtype\":\"" + std::string(name_of(type)) +
                  "\",\"shape\":" + text_of(tensor.shape) + ",\"data_offsets\":[" + std::to_string(begin) + "," +
                  std::to_string(end) + "]},";
    }
    if (header.back() == ',') header.pop_back();
    header += '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');
    if (header.size() > json_limit::safetensors_header)
        throw error(errc::usage, path, "",
                    sentence("the names and shapes of its ", tensors.size(), " tensors take ", header.size(),
                             " bytes, and a header has at most ", json_limit::safetensors_header));

    replaced_file file(path);
    auto const length = static_cast<std::uint64_t>(header.size());
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(header);
    for (auto const& tensor : tensors)
        rounded_to(as.value_or(tensor.type), tensor, [&](std::span<std::byte const> bytes) { file.write(bytes); });
    file.commit();
}

}  // namespace calm
