#pragma once
// model.safetensors.index.json: which of several files holds which tensor, and whether the files agree with it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/bounded_reader.hpp"
#include "calm/io/detail/json_object.hpp"
#include "calm/io/detail/problem_list.hpp"
#include "calm/io/safetensors.hpp"
#include "calm/io/tensor_table.hpp"

namespace calm::detail {

// The contents of an index: the file of every tensor and, if stated, the total bytes.
struct shard_index {
    std::map<std::string, std::string, std::less<>> files;  // tensor -> name of a file next to the index
    std::optional<std::uint64_t> total_size;                // total bytes of all tensors

    // The names of the files, without duplicates.
    [[nodiscard]] std::set<std::string> shards() const {
        std::set<std::string> all;
        for (auto const& [tensor, file] : files) all.insert(file);
        return all;
    }
};

inline std::optional<std::uint64_t> whole_number(simdjson::dom::element value) {
    std::uint64_t n = 0;
    if (!value.get(n)) return n;
    double x = 0;  // some writers use 123.0
    if (value.get(x) || !(x >= 0 && x < 0x1p53) || x != std::floor(x)) return std::nullopt;
    return static_cast<std::uint64_t>(x);
}

// Parses the text of an index; errors name it `path`. Throws errc::model_file with all problems.
inline shard_index parse_shard_index(std::string_view text, std::string const& path) {
    simdjson::dom::parser parser;
    auto const object = json_object(parser, text, json_limit::index, path, "byte 0");
    shard_index index;
    problem_list problems;
    std::optional<simdjson::dom::element> map;
    std::optional<simdjson::dom::element> metadata;
    for (auto const [key, value] : object) {
        auto* const slot = key == "weight_map" ? &map : key == "metadata" ? &metadata : nullptr;
        if (slot == nullptr) continue;
        if (*slot) problems.add("expected the key " + in_quotes(key) + " once, found it twice");
        *slot = value;
    }

    simdjson::dom::object entries;
    if (!map)
        problems.add("expected a key 'weight_map', found none");
    else if (map->get(entries))
        problems.add("key 'weight_map': expected an object of file names, found " + in_quotes(simdjson::minify(*map)));
    else if (entries.size() == 0)
        problems.add("key 'weight_map': expected the file of every tensor, found no tensor");
    else
        for (auto const [name, value] : entries) {
            std::string_view file;
            if (value.get(file))
                problems.add("tensor " + in_quotes(name) + ": expected the name of a file, found " +
                             in_quotes(simdjson::minify(value)));
            else if (!is_plain_file_name(file))
                problems.add("tensor " + in_quotes(name) +
                             ": expected the name of a file in the same directory, found " + in_quotes(file));
            else if (!index.files.emplace(name, file).second)
                problems.add("tensor " + in_quotes(name) + ": expected it once, found it twice");
        }

    simdjson::dom::object facts;
    if (metadata && metadata->get(facts))
        problems.add("key 'metadata': expected an object, found " + in_quotes(simdjson::minify(*metadata)));
    else if (metadata)
        for (auto const [key, value] : facts) {
            if (key != "total_size") continue;
            if (index.total_size) problems.add("key 'metadata/total_size': expected it once, found it twice");
            index.total_size = whole_number(value);
            if (!index.total_size)
                problems.add("key 'metadata/total_size': expected a whole number of bytes, found " +
                             in_quotes(simdjson::minify(value)));
        }
    problems.throw_if_any(path);
    return index;
}

// The path of a shard; nullopt if it is missing or leads out of the index's directory.
inline std::optional<std::string> path_of_shard(std::filesystem::path const& directory, std::string const& name,
                                                problem_list& problems) {
    auto const path = directory / name;
    std::error_code failed;
    auto const real = std::filesystem::canonical(path, failed);
    if (failed) {
        problems.add("file " + in_quotes(name) + ": expected it next to the index, found none (" + failed.message() +
                     "); the download is incomplete");
        return std::nullopt;
    }
    auto const home = std::filesystem::canonical(directory.empty() ? "." : directory, failed);
    if (failed || real.parent_path() != home) {
        problems.add("file " + in_quotes(name) + ": expected a file in the same directory, found a link to " +
                     in_quotes(real.string()) + "; copy it there (cp -L)");
        return std::nullopt;
    }
    return path.string();
}

inline void compare(shard_index const& index, std::string const& name, tensor_table const& shard,
                    std::map<std::string, std::string, std::less<>>& holders, problem_list& problems) {
    for (auto const& tensor : shard.tensors()) {
        auto const who = "tensor " + in_quotes(tensor.name);
        auto const listed = index.files.find(tensor.name);
        if (listed == index.files.end())
            problems.add(who + ": expected only tensors that the index lists, found it in file " + in_quotes(name));
        auto const [holder, first] = holders.emplace(tensor.name, name);
        if (!first)
            problems.add(who + ": expected it in one file, found it in " + in_quotes(holder->second) + " and in " +
                         in_quotes(name));
    }
}

// Opens the files of an index and collects their tensors, in order of file names. `open` opens one file, `keep` takes
// what must live as long as the tensors. Reports all problems together: files that are missing or unreadable; tensors
// that are missing, not listed, in the wrong file or in two; a wrong sum of bytes. Throws errc::model_file.
template <class Open, class Keep>
std::vector<stored_tensor> open_shards(std::string const& index_path, Open const& open, Keep const& keep) {
    auto const index = parse_shard_index(mapped_file::open(index_path, errc::model_file).text(), index_path);
    auto const directory = std::filesystem::path(index_path).parent_path();
    problem_list problems;
    std::map<std::string, std::string, std::less<>> holders;
    std::set<std::string> unread;
    std::vector<stored_tensor> tensors;
    std::uint64_t bytes = 0;   // of all tensors; the files are mapped, so 64 bits hold the sum
    std::uint64_t shared = 0;  // with bytes that tensors share counted once; writers use either sum
    std::set<std::byte const*> begins;
    for (auto const& name : index.shards()) {
        auto const path = path_of_shard(directory, name, problems);
        try {
            if (path) {
                auto shard = open(*path);
                compare(index, name, shard, holders, problems);
                for (auto const& tensor : shard.tensors()) {
                    tensors.push_back(tensor);
                    bytes += tensor.bytes.size();
                    if (begins.insert(tensor.bytes.data()).second) shared += tensor.bytes.size();
                }
                keep(std::move(shard));
                continue;
            }
        } catch (error const& wrong) {
            problems.add(wrong.what());
        }
        unread.insert(name);
    }
    for (auto const& [tensor, file] : index.files) {
        if (unread.contains(file)) continue;
        auto const holder = holders.find(tensor);
        if (holder == holders.end() || holder->second != file)
            problems.add("tensor " + in_quotes(tensor) + ": expected it in file " + in_quotes(file) + ", found it " +
                         (holder == holders.end() ? "nowhere" : "in " + in_quotes(holder->second)));
    }
    if (unread.empty() && index.total_size && bytes != index.total_size && shared != index.total_size)
        problems.add("key 'metadata/total_size': expected the bytes of all tensors, " + std::to_string(bytes) +
                     ", found " + std::to_string(*index.total_size));
    problems.throw_if_any(index_path);
    return tensors;
}

}  // namespace calm::detail
