#pragma once
// Tensors in .safetensors files: 8 bytes of header length, a JSON header, the bytes of all tensors without gaps.

#include <simdjson.h>

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

#include "calm/io/bounded_reader.hpp"
#include "calm/io/file.hpp"
#include "calm/io/stored_tensor.hpp"
#include "calm/tensor/error.hpp"

namespace calm {

namespace detail {

inline std::string json_string(std::string_view text) {
    constexpr std::string_view hex = "0123456789abcdef";
    std::string json = "\"";
    for (char const c : text) {
        auto const byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            (json += '\\') += c;
        else if (byte < 0x20)
            ((json += "\\u00") += hex[byte >> 4]) += hex[byte & 15U];
        else
            json += c;
    }
    return json + "\"";
}

// Reads the header of one file into tensors and metadata; every number in it is checked against the file.
class safetensors_header {
public:
    safetensors_header(std::span<std::byte const> bytes, std::string const& path) : reader_(bytes, path) {
        auto const length = reader_.little<std::uint64_t>("the length of the header");
        if (length > most)
            reader_.fail(0, "expected a header of at most " + std::to_string(most) + " bytes, found a length of " +
                                std::to_string(length) + "; it is not a safetensors file");
        auto const text = reader_.text(length, "a header");
        if (text.empty() || text.front() != '{')
            reader_.fail(8, "expected a header that begins with '{'; it is not a safetensors file");
        data_ = bytes.subspan(static_cast<std::size_t>(reader_.position()));

        simdjson::dom::parser parser;
        simdjson::dom::object header;
        if (auto const code = parser.parse(text.data(), text.size()).get(header))
            reader_.fail(8, std::string("the header is not a JSON object: ") + simdjson::error_message(code));
        for (auto const [name, value] : header) add(name, value);
        check_spans();
    }

    std::vector<stored_tensor> tensors;
    std::map<std::string, std::size_t, std::less<>> index;
    std::map<std::string, std::string> metadata;

private:
    static constexpr std::uint64_t most = 100'000'000;  // the limit of the format's reference reader

    void add(std::string_view name, simdjson::dom::element value) {
        if (name == "__metadata__") {
            if (has_metadata_) reader_.fail(8, "the header has __metadata__ twice");
            has_metadata_ = true;
            return add_metadata(value);
        }
        if (!index.emplace(name, tensors.size()).second)
            reader_.fail(8, "the header names tensor " + in_quotes(name) + " twice");
        tensors.push_back(read_tensor(name, value));
    }

    void add_metadata(simdjson::dom::element value) {
        simdjson::dom::object object;
        if (value.get(object)) reader_.fail(8, "__metadata__: expected an object of strings");
        for (auto const [key, entry] : object) {
            std::string_view text;
            if (entry.get(text)) reader_.fail(8, "__metadata__, key " + in_quotes(key) + ": expected a string");
            if (!metadata.emplace(key, text).second)
                reader_.fail(8, "__metadata__ has the key " + in_quotes(key) + " twice");
        }
    }

    stored_tensor read_tensor(std::string_view name, simdjson::dom::element value) {
        auto const who = "tensor " + in_quotes(name);
        simdjson::dom::object object;
        if (value.get(object)) reader_.fail(8, who + ": expected an object with dtype, shape and data_offsets");
        std::optional<simdjson::dom::element> dtype;
        std::optional<simdjson::dom::element> shape;
        std::optional<simdjson::dom::element> offsets;
        for (auto const [key, entry] : object) {
            auto* const slot = key == "dtype"          ? &dtype
                               : key == "shape"        ? &shape
                               : key == "data_offsets" ? &offsets
                                                       : nullptr;
            if (slot == nullptr) continue;
            if (*slot) reader_.fail(8, who + ": the key " + in_quotes(key) + " occurs twice");
            *slot = entry;
        }
        if (!dtype) reader_.fail(8, who + ": the key 'dtype' is missing");
        if (!shape) reader_.fail(8, who + ": the key 'shape' is missing");
        if (!offsets) reader_.fail(8, who + ": the key 'data_offsets' is missing");

        stored_tensor tensor{std::string(name), read_type(who, *dtype), read_shape(who, *shape), {}};
        auto const [begin, end] = read_offsets(who, *offsets);
        auto const size = bytes_of(tensor.type, tensor.shape);
        auto const sizes = std::string(name_of(tensor.type)) + " " + text_of(tensor.shape);
        if (!size) reader_.fail(8, who + ": " + sizes + " has more bytes than 64 bits can count");
        if (*size != end - begin)
            reader_.fail(8, who + ": " + sizes + " takes " + std::to_string(*size) + " bytes, but data_offsets spans " +
                                std::to_string(end - begin));
        tensor.bytes = data_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        return tensor;
    }

    stored_type read_type(std::string const& who, simdjson::dom::element value) const {
        std::string_view name;
        if (value.get(name)) reader_.fail(8, who + ": expected a string as dtype");
        for (auto const& facts : stored_types)
            if (facts.name == name) return facts.type;
        reader_.fail(8, who + ": expected a dtype among BOOL, U8 to U64, I8 to I64, F16, BF16, F32 and F64, found " +
                            in_quotes(name));
    }

    std::vector<index_t> read_shape(std::string const& who, simdjson::dom::element value) const {
        simdjson::dom::array sizes;
        if (value.get(sizes)) reader_.fail(8, who + ": expected a list of sizes as shape");
        std::vector<index_t> shape;
        for (auto const entry : sizes) {
            std::int64_t size = 0;
            if (entry.get(size) || size < 0)
                reader_.fail(8, who + ": expected sizes that are integers of at least 0 as shape, found " +
                                    in_quotes(simdjson::minify(entry)));
            shape.push_back(size);
        }
        return shape;
    }

    std::pair<std::uint64_t, std::uint64_t> read_offsets(std::string const& who, simdjson::dom::element value) const {
        simdjson::dom::array pair;
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
        if (value.get(pair) || pair.size() != 2 || pair.at(0).get(begin) || pair.at(1).get(end))
            reader_.fail(8, who + ": expected two integers of at least 0 as data_offsets, found " +
                                in_quotes(simdjson::minify(value)));
        if (begin > end)
            reader_.fail(8, who + ": data_offsets begins at " + std::to_string(begin) + ", after its end at " +
                                std::to_string(end));
        if (end > data_.size())
            reader_.fail(reader_.size(), who + " ends at byte " + std::to_string(end) +
                                             " of the data, but the file has " + std::to_string(data_.size()) +
                                             " bytes of data; it is cut short or its header is wrong");
        return {begin, end};
    }

    // The tensors cover the data from its first byte to its last, each byte once.
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
                reader_.fail(reader_.position() + begin,
                             "tensor " + in_quotes(tensor->name) + " overlaps the one before it");
            if (begin > covered)
                reader_.fail(reader_.position() + covered, std::to_string(begin - covered) + " bytes before tensor " +
                                                               in_quotes(tensor->name) + " belong to no tensor");
            covered = begin + tensor->bytes.size();
        }
        if (covered < data_.size())
            reader_.fail(reader_.position() + covered,
                         std::to_string(data_.size() - covered) + " bytes after the last tensor belong to no tensor");
    }

    bounded_reader reader_;
    std::span<std::byte const> data_;
    bool has_metadata_ = false;
};

}  // namespace detail

// An open .safetensors file: its tensors in the header's order, and its metadata. The bytes stay in the file until
// they are read. Move-only; tensors and their bytes live as long as it does.
class safetensors_file {
public:
    // Throws errc::model_file, naming the path and the byte, unless every byte of the file is accounted for.
    static safetensors_file open(std::string const& path) {
        return safetensors_file(mapped_file::open(path, errc::model_file));
    }

    [[nodiscard]] std::string const& path() const noexcept { return file_.path(); }
    [[nodiscard]] std::span<stored_tensor const> tensors() const noexcept { return header_.tensors; }
    [[nodiscard]] std::map<std::string, std::string> const& metadata() const noexcept { return header_.metadata; }

    // The tensor of a name, or null.
    [[nodiscard]] stored_tensor const* find(std::string_view name) const {
        auto const found = header_.index.find(name);
        return found == header_.index.end() ? nullptr : &header_.tensors[found->second];
    }

    // The tensor of a name; throws errc::model_file where there is none.
    [[nodiscard]] stored_tensor const& at(std::string_view name) const {
        auto const* const found = find(name);
        if (found == nullptr)
            throw error(errc::model_file, path(), "",
                        "expected a tensor " + detail::in_quotes(name) + ", found none among its " +
                            std::to_string(header_.tensors.size()));
        return *found;
    }

    // The elements of one of its tensors as numbers: see read_into and integers_of in stored_tensor.hpp.
    template <class T> void read_into(stored_tensor const& tensor, std::span<T> to) const {
        calm::read_into(tensor, to, path());
    }
    [[nodiscard]] std::vector<std::int64_t> integers(stored_tensor const& tensor) const {
        return integers_of(tensor, path());
    }

private:
    explicit safetensors_file(mapped_file file) : file_(std::move(file)), header_(file_.bytes(), file_.path()) {}

    mapped_file file_;
    detail::safetensors_header header_;
};

// Writes tensors in the order given, header padded to 8 bytes, beside the path; then flushes and renames. Throws
// errc::usage for what the format cannot hold (a name twice, bytes that are not the shape's, text that is not UTF-8)
// and errc::storage where writing fails; a file that stood there before is then unchanged.
inline void write_safetensors(std::string const& path, std::span<stored_tensor const> tensors,
                              std::map<std::string, std::string> const& metadata = {}) {
    auto const require_text = [&](std::string const& text) {
        if (!simdjson::validate_utf8(text))
            throw error(errc::usage, path, "", detail::in_quotes(text) + " is not UTF-8");
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
        auto const who = "tensor " + detail::in_quotes(tensor.name);
        if (!names.insert(tensor.name).second) throw error(errc::usage, path, "", who + ": its name is taken");
        bool const possible = std::all_of(tensor.shape.begin(), tensor.shape.end(), [](index_t n) { return n >= 0; });
        if (!possible || detail::bytes_of(tensor.type, tensor.shape) != tensor.bytes.size())
            throw error(errc::usage, path, "",
                        who + ": expected the bytes of " + std::string(name_of(tensor.type)) + " " +
                            text_of(tensor.shape) + ", found " + std::to_string(tensor.bytes.size()));
        auto const begin = std::exchange(end, end + tensor.bytes.size());
        header += detail::json_string(tensor.name) + ":{\"dtype\":\"" + std::string(name_of(tensor.type)) +
                  "\",\"shape\":" + text_of(tensor.shape) + ",\"data_offsets\":[" + std::to_string(begin) + "," +
                  std::to_string(end) + "]},";
    }
    if (header.back() == ',') header.pop_back();
    header += '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');

    replaced_file file(path);
    auto const length = static_cast<std::uint64_t>(header.size());
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(header);
    for (auto const& tensor : tensors) file.write(tensor.bytes);
    file.commit();
}

}  // namespace calm
