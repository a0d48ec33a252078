#pragma once
// Tensors in pytorch_model.bin: a zip archive with a pickle and the storages that its tensors are views of.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/bounded_reader.hpp"
#include "calm/io/detail/pickle.hpp"
#include "calm/io/detail/stored_tensor.hpp"
#include "calm/io/detail/zip_archive.hpp"
#include "calm/io/tensor_table.hpp"

namespace calm::detail {

// Finds the bytes of every tensor of one archive.
class pytorch_archive {
public:
    pytorch_archive(std::span<std::byte const> bytes, std::string path) :
        path_(std::move(path)), zip_(checked(bytes), path_), folder_(folder()) {
        zip_.check_contents();
        check_facts();
        auto const& pickle = *zip_.find(folder_ + "data.pkl");
        for (auto const& described : read_pickled_tensors(pickle.bytes, path_ + ", entry " + in_quotes(pickle.name)))
            tensors.push_back(tensor(described));
        check_entries();
    }

    std::vector<stored_tensor> tensors;

private:
    // The format before PyTorch 1.6 is a pickle without an archive.
    std::span<std::byte const> checked(std::span<std::byte const> bytes) const {
        if (!bytes.empty() && bytes[0] == std::byte{0x80})
            throw error(errc::model_file, path_, "byte 0",
                        "expected a zip archive, found a bare pickle from torch.save before PyTorch 1.6; save it again "
                        "with a newer PyTorch");
        return bytes;
    }

    [[noreturn]] void fail(zip_entry const& entry, std::string const& sentence) const {
        throw error(errc::model_file, path_, "byte " + std::to_string(entry.begin),
                    "entry " + in_quotes(entry.name) + ": " + sentence);
    }
    [[noreturn]] void fail(pickled_tensor const& tensor, std::string const& sentence) const {
        throw error(errc::model_file, path_, "tensor " + in_quotes(tensor.name), sentence);
    }

    // All entries are in one folder, together with data.pkl.
    [[nodiscard]] std::string folder() const {
        constexpr std::string_view pickle = "/data.pkl";
        for (auto const& entry : zip_.entries()) {
            if (!entry.name.ends_with(pickle)) continue;
            auto const stem = entry.name.substr(0, entry.name.size() - pickle.size());
            if (stem.find('/') == std::string::npos) return stem + "/";
        }
        throw error(errc::model_file, path_, "",
                    "expected an entry 'NAME/data.pkl', found none among the " + std::to_string(zip_.entries().size()) +
                        " of the archive; torch.save did not write it");
    }

    // Checks the small entries that describe how the archive was written.
    void check_facts() const {
        if (auto const* const order = zip_.find(folder_ + "byteorder"); order != nullptr && text(*order) != "little")
            fail(*order, "expected 'little', found " + in_quotes(text(*order)));
        auto const* const version = zip_.find(folder_ + "version");
        if (version == nullptr)
            throw error(errc::model_file, path_, "",
                        "expected an entry " + in_quotes(folder_ + "version") + ", found none");
        if (auto const found = text(*version); found != "3" && found != "3\n")
            fail(*version, "expected version 3, found " + in_quotes(found));
    }
    static std::string_view text(zip_entry const& entry) {
        return {reinterpret_cast<char const*>(entry.bytes.data()), entry.bytes.size()};
    }

    stored_tensor tensor(pickled_tensor const& described) {
        auto const name = folder_ + "data/" + described.storage;
        auto const* const storage = zip_.find(name);
        if (storage == nullptr) fail(described, "expected its storage in an entry " + in_quotes(name) + ", found none");
        used_.insert(name);
        auto const unit = calm::bytes_of(described.type);
        if (checked_multiply(described.storage_elements, unit) != storage->bytes.size())
            fail(described, "expected a storage of " + std::to_string(described.storage_elements) + " elements of " +
                                std::string(name_of(described.type)) + ", found " +
                                std::to_string(storage->bytes.size()) + " bytes in entry " + in_quotes(name));
        auto const bytes = bytes_of(described.type, described.shape);
        if (!bytes)
            fail(described, "expected a shape whose size in bytes fits 64 bits, found " + text_of(described.shape));
        require_contiguous(described, *bytes / unit);
        auto const end = checked_add(described.offset, *bytes / unit);
        if (!end || *end > described.storage_elements)
            fail(described, "expected a window inside the " + std::to_string(described.storage_elements) +
                                " elements of its storage, found " + std::to_string(*bytes / unit) + " elements from " +
                                std::to_string(described.offset) + " on");
        return {described.name, described.type, described.shape,
                storage->bytes.subspan(static_cast<std::size_t>(described.offset * unit),
                                       static_cast<std::size_t>(*bytes))};
    }

    // Requires row-major order, so that elements can stay in place; the stride of a dimension of size 1 is ignored.
    void require_contiguous(pickled_tensor const& described, std::uint64_t count) const {
        std::uint64_t stride = 1;
        for (std::size_t i = described.shape.size(); i-- > 0 && count > 0;) {
            auto const size = static_cast<std::uint64_t>(described.shape[i]);
            if (size != 1 && static_cast<std::uint64_t>(described.strides[i]) != stride)
                fail(described, "expected row-major strides for shape " + text_of(described.shape) + ", found " +
                                    text_of(described.strides) + "; save it with .contiguous()");
            stride *= size;  // divides count
        }
    }

    void check_entries() const {
        std::set<std::string, std::less<>> const facts{
            "data.pkl", "version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id"};
        for (auto const& entry : zip_.entries()) {
            bool const known = entry.name.starts_with(folder_) &&
                               (facts.contains(entry.name.substr(folder_.size())) || used_.contains(entry.name));
            if (!known) fail(entry, "expected only the storages of its tensors, found an entry that no tensor uses");
        }
    }

    std::string path_;
    zip_archive zip_;
    std::string folder_;
    std::set<std::string, std::less<>> used_;
};

// An open pytorch_model.bin, as written by torch.save since version 1.6: its tensors in the order of its dictionary. No
// code in it is executed; zip_archive.hpp and pickle.hpp define the accepted format. The bytes stay in the file until
// they are read; tensors that share a storage share bytes. Move-only; tensors are valid as long as it lives.
class pytorch_file : public tensor_table {
public:
    // Reads the file once to verify checksums. Throws errc::model_file with the path, the place and the refused
    // content.
    static pytorch_file open(std::string const& path) {
        auto file = mapped_file::open(path, errc::model_file);
        pytorch_archive archive(file.bytes(), path);
        return {std::move(file), std::move(archive.tensors)};
    }

private:
    pytorch_file(mapped_file file, std::vector<stored_tensor> tensors) :
        tensor_table(file.path(), std::move(tensors), {}), file_(std::move(file)) {}

    mapped_file file_;
};

}  // namespace calm::detail
