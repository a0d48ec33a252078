#pragma once
// Mappings of large files that give memory back: a process holds some 64 MiB of all of them together.

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

namespace calm {

// The pages of one mapped file that nobody writes to; they come back from it when they are touched again. Whoever reads
// says how much, and where all mappings of the process were touched more than `most`, all let go. Any number of threads
// may read. Stays where it is, and ends before its mapping.
class mapped_pages {
public:
    // Bytes that are touched of all mappings together until they let go.
    static constexpr std::size_t most = std::size_t{64} << 20;

    // Of all of a mapping.
    explicit mapped_pages(std::span<std::byte const> bytes) : bytes_(bytes), others_(all_of_process()) {}
    mapped_pages(mapped_pages const&) = delete;
    mapped_pages& operator=(mapped_pages const&) = delete;
    ~mapped_pages() { others_.leave(*this); }

    // Some bytes of it are about to be read.
    void touch(std::size_t bytes) {
        // Where a page is touched the system may map all that it holds as one with it: up to 2 MiB.
        constexpr std::size_t around = std::size_t{2} << 20;
        if (!touched_.load(std::memory_order_relaxed) && !touched_.exchange(true)) others_.enter(*this);
        others_.count(bytes + around);
    }
    // Gives back what it holds of memory.
    void let_go() const noexcept { ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED); }

private:
    // Those that were touched since all let go.
    class touched_together {
    public:
        void enter(mapped_pages& one) {
            std::scoped_lock const held(lock_);
            touched_.push_back(&one);
        }
        void leave(mapped_pages& one) {
            std::scoped_lock const held(lock_);
            std::erase(touched_, &one);
        }
        void count(std::size_t bytes) {
            if (bytes_.fetch_add(bytes, std::memory_order_relaxed) < most) return;
            bytes_.store(0, std::memory_order_relaxed);
            std::scoped_lock const held(lock_);
            for (auto* const one : touched_) {
                one->touched_.store(false);
                one->let_go();
            }
            touched_.clear();
        }

    private:
        std::mutex lock_;
        std::atomic<std::size_t> bytes_ = 0;
        std::vector<mapped_pages*> touched_;
    };
    static touched_together& all_of_process() {
        static touched_together all;
        return all;
    }

    std::span<std::byte const> bytes_;
    touched_together& others_;
    std::atomic<bool> touched_ = false;
};

}  // namespace calm
