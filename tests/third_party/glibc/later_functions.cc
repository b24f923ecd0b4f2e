// SPDX-License-Identifier: Apache-2.0
// A program that uses functions which an older glibc or libstdc++ lacks, and
// what start.c does. It prints one line for each, the same on every system.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory_resource>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

int num_constructions = 0;

struct Early {
  Early() { ++num_constructions; }
};

Early early;

__attribute__((constructor)) void Construct() { ++num_constructions; }

thread_local int local = 5;

void ThrowBetweenThreads() {
  std::exception_ptr thrown;
  std::thread([&thrown] {
    local = 7;
    try {
      throw std::runtime_error("from a thread");
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    std::cout << "caught " << error.what() << ", local " << local << "\n";
  }
  try {
    std::cout << std::filesystem::file_size("/no/such");
  } catch (const std::exception& error) {
    std::cout << "caught " << error.what() << "\n";
  }
}

// The last takes more than a second, after which compat.c looks at the clock.
void Wait() {
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  bool done = false;
  std::thread other([&] {
    const std::lock_guard guard(mutex);
    done = true;
    condition.notify_one();
  });
  std::cout << "notified "
            << condition.wait_for(lock, std::chrono::minutes(1),
                                  [&] { return done; });
  other.join();
  for (const std::chrono::milliseconds time :
       {std::chrono::milliseconds(-5000), std::chrono::milliseconds(10),
        std::chrono::milliseconds(2010)}) {
    const auto begin = std::chrono::steady_clock::now();
    const bool found = condition.wait_for(lock, time, [&] { return !done; });
    std::cout << ", waited "
              << (std::chrono::steady_clock::now() - begin >= time) << " "
              << found;
  }
  std::cout << "\n";
}

void LookAtFiles(const char* path) {
  struct stat first, second, third, fourth;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  std::cout << "files " << stat(path, &first) << lstat(path, &second)
            << fstat(file, &third) << fstatat(AT_FDCWD, path, &fourth, 0)
            << " of equal size " << (first.st_size == second.st_size)
            << (first.st_size == third.st_size)
            << (first.st_size == fourth.st_size) << (first.st_size > 0) << "\n";
  close(file);
}

}  // namespace

int main(int, char** arguments) {
  std::cout << "constructions " << num_constructions << "\n";
  ThrowBetweenThreads();
  Wait();
  LookAtFiles(arguments[0]);
  std::cout << "signal " << sigabbrev_np(SIGTERM) << ", error "
            << strerrordesc_np(ENOENT) << ", thread "
            << (gettid() == syscall(SYS_gettid)) << "\n";

  char text[32] = {};
  std::to_chars(text, text + sizeof(text), 0.1);
  std::pmr::monotonic_buffer_resource memory;
  std::random_device random;
  std::cout << "number " << text << ", memory "
            << (memory.allocate(8) != memory.allocate(8)) << ", random "
            << (random() != random() || random() != random()) << "\n";
}
