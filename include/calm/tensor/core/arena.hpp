#pragma once
/// \file
/// One bump allocator for each kind of memory: parameters, gradients, optimizer state, saved activations, workspace.
/// After its first round of use an arena is one block, and later rounds allocate nothing.
/// \shows{tests/tensor/arena_test.cpp,rewinding_frees_later_allocations}

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/tensor/core/view.hpp"
#include "calm/tensor/detail/core/memory.hpp"

namespace calm {

/// A bump allocator; memory is released in reverse order. Not thread-safe.
template <class Backend = cpu> class arena {
    using memory = detail::memory_of<Backend>;
    static constexpr std::size_t alignment = detail::memory_alignment;
    // Whether the backend checks every allocation when it is taken and when it is released.
    static constexpr bool watched = requires { memory::red_zone; };

public:
    /// The name must outlive the arena. The constructor allocates nothing.
    explicit arena(std::string_view name) : name_(name) {}
    /// A moved-from arena has no memory. It may only be destroyed, or another arena may be assigned to it.
    arena(arena&&) noexcept = default;
    arena& operator=(arena&&) noexcept = default;

    /// Uninitialised memory for the shape, valid until the arena is rewound past it. Throws errc::memory if there is
    /// not enough, or if the size of the shape overflows.
    template <class T, class Extents> view<T, Extents, Backend> take(Extents const& shape) {
        std::array<index_t, Extents::rank + 1> sizes{};
        for (std::size_t r = 0; r < Extents::rank; ++r) sizes[r] = shape[r];
        return {static_cast<T*>(take_sizes({sizes.data(), Extents::rank}, sizeof(T))), shape};
    }

    /// A fill level, for the same arena's `rewind`.
    struct mark {
        std::size_t block = 0;  ///< the block in use
        std::size_t used = 0;   ///< bytes used in it
        std::size_t total = 0;  ///< bytes used in all blocks
    };
    [[nodiscard]] mark here() const { return {current_, used_, total_}; }  ///< for rewind

    /// Frees all memory taken since the mark. Rewinding to the start merges several blocks into one.
    void rewind(mark m) {
        if constexpr (watched)
            for (; !pieces_.empty() && pieces_.back().total >= m.total; pieces_.pop_back())
                memory::end_piece(pieces_.back().first, pieces_.back().bytes, name_);
        current_ = m.block;
        used_ = m.used;
        total_ = m.total;
        if (total_ == 0 && blocks_.size() > 1) {
            blocks_.clear();
            add_block(peak_);
        }
    }
    void clear() { rewind({}); }  ///< frees everything

    /// Turns the backend's checks of later allocations on or off; off in a dry run, which writes no memory.
    void watch([[maybe_unused]] bool on) { watches_ = on; }

    [[nodiscard]] std::string name() const { return std::string(name_); }  ///< for messages
    [[nodiscard]] std::size_t used() const { return total_; }              ///< bytes in use, alignment included
    [[nodiscard]] std::size_t peak() const { return peak_; }               ///< most bytes ever in use
    /// Allocations made so far. While the count stays, memory taken after the same mark has the same address.
    [[nodiscard]] std::size_t allocations() const { return allocations_; }

private:
    struct release {
        void operator()(std::byte* p) const { memory::release(p); }
    };
    struct block {
        std::unique_ptr<std::byte[], release> bytes;
        std::size_t size = 0;
    };
    struct piece {
        std::byte* first = nullptr;
        std::size_t bytes = 0;
        std::size_t total = 0;  // bytes taken before it
    };

    // Memory for a shape of elements of `element` bytes. Not a template: compiled once for all types.
    [[gnu::noinline]] void* take_sizes(std::span<index_t const> sizes, std::size_t element) {
        auto const bytes = detail::bytes_of_sizes(sizes, element);
        require(bytes.has_value(), errc::memory, [&] {
            return sentence("calm::arena '", name_, "': expected a shape that memory can hold, found ",
                            detail::text_of_sizes(sizes.data(), sizes.size()), " of ", element,
                            " bytes each; use smaller batches or shorter blocks");
        });
        return take_bytes(*bytes);
    }

    void add_block(std::size_t size) {
        block b{std::unique_ptr<std::byte[], release>(static_cast<std::byte*>(memory::allocate(size))), size};
        require(b.bytes != nullptr, errc::memory, "calm::arena '", name_, "': expected ", size,
                " bytes of free memory; use smaller batches or shorter blocks");
        blocks_.push_back(std::move(b));
        ++allocations_;
    }

    void* take_bytes(std::size_t wanted) {
        std::size_t bytes = (wanted + alignment - 1) / alignment * alignment;
        if constexpr (watched) bytes += memory::red_zone;
        while (blocks_.empty() || bytes > blocks_[current_].size - used_) {
            if (!blocks_.empty() && current_ + 1 < blocks_.size()) {
                ++current_;
            } else {
                add_block(std::max({bytes, peak_ / 2, std::size_t{1} << 20}));
                current_ = blocks_.size() - 1;
            }
            used_ = 0;
        }
        std::byte* const p = blocks_[current_].bytes.get() + used_;
        if constexpr (watched)
            if (watches_) {
                memory::begin_piece(p, bytes - memory::red_zone);
                pieces_.push_back({p, bytes - memory::red_zone, total_});
            }
        used_ += bytes;
        total_ += bytes;
        peak_ = std::max(peak_, total_);
        return p;
    }

    std::string_view name_;
    std::vector<block> blocks_;
    std::vector<piece> pieces_;  // only if watched
    bool watches_ = true;
    std::size_t current_ = 0;
    std::size_t used_ = 0;
    std::size_t total_ = 0;
    std::size_t peak_ = 0;
    std::size_t allocations_ = 0;
};

/// Frees, at the end of the scope, all memory taken from an arena within it.
template <class Backend> class arena_scope {
public:
    /// Begins the scope.
    explicit arena_scope(arena<Backend>& a) : arena_(a), mark_(a.here()) {}
    ~arena_scope() { arena_.rewind(mark_); }
    arena_scope(arena_scope const&) = delete;
    arena_scope& operator=(arena_scope const&) = delete;

private:
    arena<Backend>& arena_;
    typename arena<Backend>::mark mark_;
};

}  // namespace calm
