// Task<T>: a coroutine that starts when it is awaited, or run by Client::run(), and gives a T or throws.
//
//   declock::Task<int> answer() { co_return 42; }
//   int a = co_await answer();
//
// Destroying a Task destroys the coroutine where it stands. REQUIRES: it does not wait for an operation of a client, such
// as a lock; to end that wait there are stop tokens and time-outs.
//
// Thread-safety: none. A Task is used from one thread at a time.
#ifndef DECLOCK_TASK_H
#define DECLOCK_TASK_H

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

#include "declock/config.h"

namespace declock {

template <class T>
class [[nodiscard]] Task;

namespace detail {

DECLOCK_EXPORT void* allocate_frame(std::size_t bytes);
DECLOCK_EXPORT void free_frame(void* frame) noexcept;
[[noreturn]] DECLOCK_EXPORT void bad_task_access();

// Inside the library a coroutine takes its frame from the pool of its first parameter (for a member function: of the
// object), if that has one.
template <class Owner>
concept HasFrames = requires(Owner& owner, std::size_t bytes) {
  { owner.frames().allocate(bytes) } -> std::same_as<void*>;
};

struct PromiseBase {
  std::coroutine_handle<> continuation = std::noop_coroutine();
  std::exception_ptr error{};

  template <class Owner, class... Rest>
  requires HasFrames<Owner>
  static void* operator new(std::size_t size, Owner&& owner, Rest&&...) {
    return owner.frames().allocate(size);
  }
  static void* operator new(std::size_t size) { return allocate_frame(size); }
  static void operator delete(void* frame) { free_frame(frame); }

  std::suspend_always initial_suspend() const noexcept { return {}; }

  struct Finish {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      return self.promise().continuation;
    }
    void await_resume() const noexcept {}
  };
  Finish final_suspend() const noexcept { return {}; }

  void unhandled_exception() noexcept { error = std::current_exception(); }
  void rethrow() const {
    if (error) std::rethrow_exception(error);
  }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  template <class U>
  void return_value(U&& v) {
    value.emplace(std::forward<U>(v));
  }
  T take() {
    rethrow();
    return std::move(*value);
  }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() const {}
  void take() const { rethrow(); }
};

}  // namespace detail

template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;  // none yet
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // For the root of a tree of coroutines: runs it to its first suspension.
  void start() { handle_.resume(); }
  bool done() const { return handle_.done(); }

  // What it gave, or throws what it threw. REQUIRES: done().
  T take() {
    if (!done()) detail::bad_task_access();
    return handle_.promise().take();
  }

  // Awaits it, having run it to its first suspension at once: if it is done by then, nobody is suspended, and a loop of
  // such awaits needs no more stack, however little the compiler optimizes.
  auto begun() && noexcept {
    struct Awaiter {
      Handle child;
      bool await_ready() const {
        child.resume();
        return child.done();
      }
      void await_suspend(std::coroutine_handle<> parent) const noexcept {
        child.promise().continuation = parent;
      }
      T await_resume() const { return child.promise().take(); }
    };
    return Awaiter{handle_};
  }

  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle child;
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) const noexcept {
        child.promise().continuation = parent;
        return child;
      }
      T await_resume() const { return child.promise().take(); }
    };
    return Awaiter{handle_};
  }

 private:
  Handle handle_{};
};

namespace detail {

template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>{std::coroutine_handle<Promise>::from_promise(*this)};
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>{std::coroutine_handle<Promise>::from_promise(*this)};
}

}  // namespace detail
}  // namespace declock

#endif
