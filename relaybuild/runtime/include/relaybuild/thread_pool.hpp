/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that instances of several models share, for C++17. It knows the contract of RbThreadPool, and no model. */
#ifndef RELAYBUILD_THREAD_POOL_HPP_
#define RELAYBUILD_THREAD_POOL_HPP_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "relaybuild/error.hpp"
#include "relaybuild/model.h"

namespace relaybuild {

/* A number of threads, of which the calling one is the first. However many threads of the application run models in it,
 * and however many models these are, no more than threads() compute at a time: a run takes all the threads that it
 * needs at once, in the order in which runs come, and the others wait. It has to outlive the instances that were made
 * with it. After fork() it works in the child too, unless it was running something at that moment. What runs in it must
 * not run something in it. */
class ThreadPool {
public:
  /* 0 stands for as many threads as the machine has. Throws Error where they cannot be started. */
  explicit ThreadPool(int32_t threads = 0) : ThreadPool(Unstarted{Wanted(threads)}) {
    Start().OrThrow();
  }
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  /* The same without exceptions; without them, too, the standard library ends a program that has no more threads. */
  static Result<std::unique_ptr<ThreadPool>> Make(int32_t threads = 0) noexcept {
    return internal::WithMemory([threads]() -> Result<std::unique_ptr<ThreadPool>> {
      std::unique_ptr<ThreadPool> pool(new ThreadPool(Unstarted{Wanted(threads)}));
      Status status = pool->Start();
      if (!status.ok()) {
        return status;
      }
      return pool;
    });
  }

  ~ThreadPool() {
    if (process_.load() == ThisProcess()) {
      Stop();
    } else {
      Forget();
    }
  }

  int32_t threads() const noexcept {
    return pool_.threads;
  }
  /* For RbCreateOptions and Options. */
  const RbThreadPool *c() const noexcept {
    return &pool_;
  }
  operator const RbThreadPool *() const noexcept {
    return &pool_;
  }

  /* What RbThreadPool's run() does. */
  int32_t Run(void (*task)(void *argument, int32_t thread), void *argument, int32_t count) {
    if (count > pool_.threads || !Adopt()) {
      return -1;
    }
    Job job{task, argument, count, 1, {count - 1}, nullptr, {}};
    Begin(&job);
    task(argument, 0);
    End(&job);
    return 0;
  }

private:
  /* One run; lies on the stack of the thread that called it. All but `remaining` belongs to the mutex. */
  struct Job {
    void (*task)(void *argument, int32_t thread);
    void *argument;
    int32_t count;
    int32_t next; /* the number of the next task that nobody has taken */
    std::atomic<int32_t> remaining;
    Job *behind;
    std::condition_variable done;
  };

  struct State {
    std::mutex mutex;
    std::condition_variable work; /* there are tasks, or the end has come */
    std::condition_variable room; /* threads became free, or another run is the next */
    std::vector<std::thread> workers;
    Job *first = nullptr, *last = nullptr; /* with tasks that nobody has taken */
    int32_t idle = 0;
    uint64_t next_ticket = 0, serving = 0;
    bool stop = false;
    std::atomic<uint32_t> posted{0};
  };

  struct Unstarted {
    int32_t threads;
  };

  static constexpr std::chrono::microseconds kSpin{50};

  explicit ThreadPool(Unstarted wanted) : pool_{this, wanted.threads, RunInContext} {}

  static int32_t Wanted(int32_t threads) {
    const auto found = static_cast<int32_t>(std::thread::hardware_concurrency());
    return threads > 0 ? threads : found > 0 ? found : 1;
  }

  static int32_t RunInContext(void *context, void (*task)(void *argument, int32_t thread), void *argument,
                              int32_t count) {
    return static_cast<ThreadPool *>(context)->Run(task, argument, count);
  }

  static int64_t ThisProcess() {
#if defined(__unix__) || defined(__APPLE__)
    return static_cast<int64_t>(getpid());
#else
    return 1;
#endif
  }

  Status Start() {
    state_.idle = pool_.threads;
#if defined(__cpp_exceptions)
    try {
      StartWorkers();
    } catch (const std::system_error &error) {
      const size_t started = state_.workers.size();
      Stop();
      return Status(Errc::thread, "cannot start thread " + std::to_string(started + 2) + " of " +
                                      std::to_string(pool_.threads) + " of a pool: " + error.code().message());
    } catch (...) {
      Stop();
      throw;
    }
#else
    StartWorkers();
#endif
    process_.store(ThisProcess());
    return Status();
  }

  void StartWorkers() {
    state_.workers.reserve(static_cast<size_t>(pool_.threads));
    for (int32_t i = 1; i < pool_.threads; ++i) {
      state_.workers.emplace_back([this] { Work(); });
    }
  }

  void Stop() {
    {
      const std::lock_guard<std::mutex> lock(state_.mutex);
      state_.stop = true;
      state_.posted.fetch_add(1);
    }
    state_.work.notify_all();
    for (std::thread &worker : state_.workers) {
      worker.join();
    }
    state_.workers.clear();
    state_.stop = false;
  }

  /* In a child of fork(): the threads are gone, and what they held or waited for stays as it was for ever. Destroying
   * any of that would wait for them. */
  void Forget() {
    for (std::thread &worker : state_.workers) {
      ::new (static_cast<void *>(&worker)) std::thread();
    }
    state_.workers = std::vector<std::thread>();
    ::new (static_cast<void *>(&state_)) State();
  }

  /* Makes the threads again where fork() has taken them; false where that fails. */
  bool Adopt() {
    const int64_t mine = ThisProcess();
    int64_t found = process_.load(std::memory_order_acquire);
    while (found != mine) {
      if (found == -mine) { // another thread is at it
        std::this_thread::yield();
        found = process_.load(std::memory_order_acquire);
      } else if (process_.compare_exchange_strong(found, -mine)) {
        Forget();
        const bool started = internal::WithMemory([this] { return Start(); }).ok();
        process_.store(started ? mine : 0);
        return started;
      }
    }
    return true;
  }

  void Begin(Job *job) {
    std::unique_lock<std::mutex> lock(state_.mutex);
    const uint64_t ticket = state_.next_ticket++;
    state_.room.wait(lock, [&] { return ticket == state_.serving && job->count <= state_.idle; });
    ++state_.serving;
    state_.idle -= job->count;
    if (job->next < job->count) {
      (state_.first ? state_.last->behind : state_.first) = job;
      state_.last = job;
    }
    state_.posted.fetch_add(1, std::memory_order_release);
    const bool others_wait = state_.serving != state_.next_ticket;
    lock.unlock();
    state_.work.notify_all();
    if (others_wait) {
      state_.room.notify_all();
    }
  }

  void End(Job *job) {
    Spin([job] { return job->remaining.load(std::memory_order_acquire) == 0; });
    std::unique_lock<std::mutex> lock(state_.mutex);
    job->done.wait(lock, [job] { return job->remaining.load() == 0; });
    state_.idle += job->count;
    const bool others_wait = state_.serving != state_.next_ticket;
    lock.unlock();
    if (others_wait) {
      state_.room.notify_all();
    }
  }

  void Work() {
    uint32_t seen = 0;
    for (;;) {
      Spin([&] { return state_.posted.load(std::memory_order_acquire) != seen; });
      std::unique_lock<std::mutex> lock(state_.mutex);
      state_.work.wait(lock, [this] { return state_.first || state_.stop; });
      if (!state_.first) {
        return;
      }
      Job *job = state_.first;
      const int32_t thread = job->next++;
      if (job->next == job->count) {
        state_.first = job->behind;
      }
      seen = state_.posted.load(std::memory_order_relaxed);
      lock.unlock();
      job->task(job->argument, thread);
      lock.lock();
      if (job->remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        job->done.notify_one(); // before the lock is left: then the job may be gone
      }
    }
  }

  /* Looks for a moment whether something holds before it is waited for asleep; gives way to threads that have work. */
  template <class Condition> void Spin(Condition condition) const {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    while (!condition() && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  }

  RbThreadPool pool_;
  std::atomic<int64_t> process_{0}; /* where the threads exist; negative while they are made there */
  State state_;
};

} // namespace relaybuild

#endif
