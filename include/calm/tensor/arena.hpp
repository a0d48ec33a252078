#pragma once
// One bump allocator for each kind of memory: values, gradients, moments, saved activations, scratch. After its first
// round of use an arena is one block, and the rounds that follow allocate nothing.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/tensor/memory.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

// Memory that is taken piece by piece and given back last first. Not for several threads at once.
template <class Backend = cpu> class arena {
    using memory = detail::memory_of<Backend>;
    static constexpr std::size_t alignment = detail::memory_alignment;
    // Whether the backend looks at every piece when it begins and when it ends.
    static constexpr bool watched = requires { memory::red_zone; };

public:
    // The name is a literal, or outlives the arena: making an arena allocates nothing.
    explicit arena(std::string_view name) : name_(name) {}
    arena(arena&&) noexcept = default;
    arena& operator=(arena&&) noexcept = default;

    // Uninitialised memory for the shape, valid until the arena is rewound past it. Throws errc::memory where there is
    // not enough, and for a shape of more elements than can be counted.
    template <class T, class Extents> view<T, Extents, Backend> take(Extents const& shape) {
        std::array<index_t, Extents::rank + 1> sizes{};
        for (std::size_t r = 0; r < Extents::rank; ++r) sizes[r] = shape[r];
        return {static_cast<T*>(take_sizes({sizes.data(), Extents::rank}, sizeof(T))), shape};
    }

    // How far an arena was used; of that arena alone.
    struct mark {
        std::size_t block = 0;  // the block in use
        std::size_t used = 0;   // bytes of it
        std::size_t total = 0;  // bytes of all blocks
    };
    [[nodiscard]] mark here() const { return {current_, used_, total_}; }  // for rewind

    // Frees what was taken since the mark; rewound to the start, several blocks become one.
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
    void clear() { rewind({}); }  // gives all back: what was taken is no longer valid

    // Whether the backend looks at the pieces that are taken from now on, if it does at all: in a rehearsal there is
    // nothing to see.
    void watch([[maybe_unused]] bool on) { watches_ = on; }

    [[nodiscard]] std::string name() const { return std::string(name_); }  // for messages
    [[nodiscard]] std::size_t used() const { return total_; }              // bytes taken now, with what alignment adds
    [[nodiscard]] std::size_t peak() const { return peak_; }               // bytes, the most that were taken at once
    // How often it asked for memory: while that stays, what is taken behind the same mark lies at the same place.
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
        std::size_t total = 0;  // bytes that were taken before it
    };

    // For so many elements of so many bytes each; compiled once, whatever they are.
    [[gnu::noinline]] void* take_sizes(std::span<index_t const> sizes, std::size_t element) {
        auto const bytes = bytes_of_sizes(sizes, element);
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
    std::vector<piece> pieces_;  // where they are watched
    bool watches_ = true;
    std::size_t current_ = 0;
    std::size_t used_ = 0;
    std::size_t total_ = 0;
    std::size_t peak_ = 0;
    std::size_t allocations_ = 0;
};

// Rewinds an arena to where it stood, at the end of a scope.
template <class Backend> class arena_scope {
public:
    // Of what is taken from now on.
    explicit arena_scope(arena<Backend>& a) : arena_(a), mark_(a.here()) {}
    ~arena_scope() { arena_.rewind(mark_); }
    arena_scope(arena_scope const&) = delete;
    arena_scope& operator=(arena_scope const&) = delete;

private:
    arena<Backend>& arena_;
    typename arena<Backend>::mark mark_;
};

}  // namespace calm
