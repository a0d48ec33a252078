#pragma once
// Bounds the memory of mapped large files: about 64 MiB for all mappings of the process together.

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

namespace calm::detail {

// The pages of one mapped file that is never modified; released pages are reloaded from it on access. Readers announce
// how much they read. Once all mappings of the process together have touched more than `most` bytes, all release their
// pages. Any number of threads may read. Not movable; must be destroyed before its mapping.
class mapped_pages {
public:
    // Bytes touched in all mappings together before they release their pages.
    static constexpr std::size_t most = std::size_t{64} << 20;

    // Covers a whole mapping.
    explicit mapped_pages(std::span<std::byte const> bytes) : bytes_(bytes), others_(all_of_process()) {}
    mapped_pages(mapped_pages const&) = delete;
    mapped_pages& operator=(mapped_pages const&) = delete;
    ~mapped_pages() { others_.leave(*this); }

    // Announces that some bytes of it are about to be read.
    void touch(std::size_t bytes) {
        // A page fault may map the whole large page around it: up to 2 MiB.
        constexpr std::size_t around = std::size_t{2} << 20;
        if (!touched_.load(std::memory_order_relaxed) && !touched_.exchange(true)) others_.enter(*this);
        others_.count(bytes + around);
    }
    // Releases the memory of its pages.
    void let_go() const noexcept { ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED); }

private:
    // The mappings touched since the last release.
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

}  // namespace calm::detail
