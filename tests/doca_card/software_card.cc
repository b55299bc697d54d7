#include "software_card.h"

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

// Everything of this library is called from outside.
#pragma GCC visibility push(default)

namespace {

constexpr std::uint32_t tasks_max = 96;
constexpr std::uint64_t task_bytes_max = 200'000;
constexpr std::uint64_t descriptor_magic = 0x44524143'54464F53ull;
constexpr std::uint64_t line_bytes = 64;
constexpr std::size_t window = 12;  // of tasks that are under way at one time

SoftwareCard card;

bool due(std::atomic<int>& count) {
  int left = count.load();
  while (left > 0 && !count.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

doca_error_t misuse(doca_error_t code = DOCA_ERROR_BAD_STATE) {
  ++card.misuses;
  return code;
}

// The exporting process's record, for as long as the export lives; importers look at it. An address is never used
// again.
std::uint64_t* new_cookie() {
  static std::mutex mutex;
  static std::deque<std::uint64_t> cookies;
  static std::mt19937_64 random(static_cast<std::uint64_t>(getpid()));
  const std::lock_guard lock(mutex);
  return &cookies.emplace_back(random() | 1);
}

struct Descriptor {
  std::uint64_t magic, base, length, cookie, cookie_address;
  std::int64_t pid;
  std::uint32_t permissions, sum;
};

std::uint32_t sum_of(const Descriptor& descriptor) {
  std::uint32_t sum = 17;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&descriptor);
  for (std::size_t i = 0; i < offsetof(Descriptor, sum); ++i) sum = sum * 31 + bytes[i];
  return sum;
}

bool copy_from(pid_t pid, std::uint64_t address, void* to, std::size_t length) {
  const iovec here{to, length}, there{reinterpret_cast<void*>(address), length};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == static_cast<ssize_t>(length);
}

bool copy_to(pid_t pid, std::uint64_t address, const void* from, std::size_t length) {
  const iovec here{const_cast<void*>(from), length}, there{reinterpret_cast<void*>(address), length};
  return process_vm_writev(pid, &here, 1, &there, 1, 0) == static_cast<ssize_t>(length);
}

}  // namespace

struct doca_devinfo {
  const char* address;
  bool exports, imports;
};
struct doca_dev {
  doca_devinfo* info;
  std::atomic<int> users{0};
};
struct doca_mmap {
  doca_dev* dev = nullptr;
  std::uint64_t base = 0, length = 0;
  std::uint32_t permissions = 0;
  bool started = false, imported = false;
  pid_t pid = 0;
  std::uint64_t cookie = 0, cookie_address = 0;
  std::uint64_t* own_cookie = nullptr;
  std::unique_ptr<Descriptor> descriptor;
  int buffers = 0;
};
struct doca_buf {
  doca_buf_inventory* inventory;
  doca_mmap* map = nullptr;
  std::uint64_t base = 0, length = 0, data = 0, data_length = 0;
};
struct doca_buf_inventory {
  std::deque<doca_buf> all;
  std::vector<doca_buf*> idle;
  bool started = false;
};
struct doca_ctx {
  doca_dma* dma = nullptr;
  doca_pe* engine = nullptr;
  doca_ctx_states state = DOCA_CTX_STATE_IDLE;
  doca_data data{};
  doca_ctx_state_changed_callback_t changed = nullptr;
};
struct doca_task {
  doca_dma* dma = nullptr;
};
struct doca_dma_task_memcpy {
  doca_task base;
  const doca_buf* source = nullptr;
  doca_buf* target = nullptr;
  doca_data data{};
  doca_error_t status = DOCA_SUCCESS;
  std::uint64_t copied = 0, number = 0;
  bool taken = false, submitted = false;
};
struct doca_dma {
  doca_dev* dev = nullptr;
  doca_ctx context;
  doca_dma_task_memcpy_completion_cb_t moved = nullptr, failed = nullptr;
  std::deque<doca_dma_task_memcpy> tasks;
  std::vector<doca_dma_task_memcpy*> under_way;
  std::mt19937_64 random;
  std::uint64_t next_number = 0;
};
struct doca_pe {
  int events = -1;
  bool armed = false;
  doca_ctx* context = nullptr;
};

namespace {

doca_devinfo devices[] = {{"0000:05:00.0", false, false}, {"0000:03:00.0", true, true}, {"0000:03:00.1", true, true}};

void enter(doca_ctx& context, doca_ctx_states state) {
  const doca_ctx_states before = context.state;
  context.state = state;
  if (context.changed != nullptr) context.changed(context.data, &context, before, state);
}

void notify(doca_pe& engine) {
  const std::uint64_t one = 1;
  if (engine.armed && write(engine.events, &one, sizeof one) != sizeof one) ++card.misuses;
}

bool lives(const doca_mmap& map) {
  std::uint64_t seen = 0;
  return !map.imported || (copy_from(map.pid, map.cookie_address, &seen, sizeof seen) && seen == map.cookie);
}

// The next bytes of a task: up to the end of a line or further, at random.
bool copy_some(doca_dma& dma, doca_dma_task_memcpy& task) {
  const doca_mmap& source = *task.source->map;
  doca_mmap& target = *task.target->map;
  if (!lives(source) || !lives(target)) return false;
  if (target.imported ? (target.permissions & DOCA_ACCESS_FLAG_PCI_READ_WRITE) == 0
                      : (target.permissions & DOCA_ACCESS_FLAG_LOCAL_READ_WRITE) == 0)
    return false;
  const std::uint64_t left = task.source->data_length - task.copied;
  std::uint64_t length = left;
  if (left > line_bytes && dma.random() % 4 == 0)
    length = std::min(left, dma.random() % left / line_bytes * line_bytes + line_bytes);
  const std::uint64_t from = task.source->data + task.copied, to = task.target->base + task.copied;
  task.copied += length;
  if (source.imported && !target.imported) return copy_from(source.pid, from, reinterpret_cast<void*>(to), length);
  if (!source.imported && target.imported) return copy_to(target.pid, to, reinterpret_cast<const void*>(from), length);
  ++card.misuses;  // no caller requests a copy within one end
  return false;
}

void complete(doca_dma& dma, std::size_t at, doca_error_t status) {
  doca_dma_task_memcpy& task = *dma.under_way[at];
  dma.under_way.erase(dma.under_way.begin() + static_cast<std::ptrdiff_t>(at));
  task.status = status;
  task.submitted = false;
  if (status == DOCA_SUCCESS) {
    task.target->data_length += task.source->data_length;
    ++card.tasks;
    if (std::ranges::any_of(dma.under_way, [&](const auto* other) { return other->number < task.number; }))
      ++card.overtaken;
  }
  (status == DOCA_SUCCESS ? dma.moved : dma.failed)(&task, task.data, dma.context.data);
}

// 1: something ended.
std::uint8_t step(doca_dma& dma) {
  doca_ctx& context = dma.context;
  if (card.gone && context.state == DOCA_CTX_STATE_RUNNING) {
    enter(context, DOCA_CTX_STATE_STOPPING);
    return 1;
  }
  if (context.state == DOCA_CTX_STATE_STOPPING) {
    if (!dma.under_way.empty()) {
      complete(dma, 0, DOCA_ERROR_BAD_STATE);
      return 1;
    }
    if (std::ranges::any_of(dma.tasks, &doca_dma_task_memcpy::taken)) return 0;
    enter(context, DOCA_CTX_STATE_IDLE);
    return 1;
  }
  for (int i = 0; i < 6 && !dma.under_way.empty(); ++i) {
    const std::size_t at = dma.random() % std::min(dma.under_way.size(), window);
    doca_dma_task_memcpy& task = *dma.under_way[at];
    if (task.copied == task.source->data_length) {
      complete(dma, at, DOCA_SUCCESS);
      return 1;
    }
    int until = card.tasks_until_failure;
    if (task.copied == 0 && until >= 0) card.tasks_until_failure = until - 1;
    if (until == 0 || !copy_some(dma, task)) {
      complete(dma, at, DOCA_ERROR_IO_FAILED);
      enter(context, DOCA_CTX_STATE_STOPPING);
      return 1;
    }
  }
  return 0;
}

}  // namespace

extern "C" {

SoftwareCard* software_card() { return &card; }

const char* doca_error_get_descr(doca_error_t error) {
  switch (error) {
    case DOCA_SUCCESS:
      return "success";
    case DOCA_ERROR_NOT_PERMITTED:
      return "not permitted";
    case DOCA_ERROR_IN_USE:
      return "in use";
    case DOCA_ERROR_NOT_SUPPORTED:
      return "not supported";
    case DOCA_ERROR_INVALID_VALUE:
      return "invalid value";
    case DOCA_ERROR_NO_MEMORY:
      return "no memory";
    case DOCA_ERROR_NOT_FOUND:
      return "not found";
    case DOCA_ERROR_IO_FAILED:
      return "input/output failed";
    case DOCA_ERROR_BAD_STATE:
      return "bad state";
    case DOCA_ERROR_DRIVER:
      return "driver";
    case DOCA_ERROR_IN_PROGRESS:
      return "in progress";
  }
  return "unknown";
}

// ---- devices

doca_error_t doca_devinfo_create_list(doca_devinfo*** list, std::uint32_t* count) {
  *count = std::size(devices);
  *list = new doca_devinfo*[*count];
  for (std::uint32_t i = 0; i < *count; ++i) (*list)[i] = &devices[i];
  return DOCA_SUCCESS;
}
doca_error_t doca_devinfo_destroy_list(doca_devinfo** list) {
  delete[] list;
  return DOCA_SUCCESS;
}
doca_error_t doca_devinfo_get_pci_addr_str(const doca_devinfo* info, char* text) {
  std::memcpy(text, info->address, DOCA_DEVINFO_PCI_ADDR_SIZE);
  return DOCA_SUCCESS;
}
doca_error_t doca_devinfo_is_equal_pci_addr(const doca_devinfo* info, const char* text, std::uint8_t* equal) {
  const std::size_t length = std::strlen(text);
  if (length != 12 && length != 7) return DOCA_ERROR_INVALID_VALUE;
  *equal = std::strcmp(info->address + 12 - length, text) == 0;
  return DOCA_SUCCESS;
}
doca_error_t doca_dev_open(doca_devinfo* info, doca_dev** dev) {
  if (due(card.opens_fail)) return DOCA_ERROR_IN_USE;
  *dev = new doca_dev{info};
  return DOCA_SUCCESS;
}
doca_error_t doca_dev_close(doca_dev* dev) {
  if (dev->users != 0) return misuse(DOCA_ERROR_IN_USE);
  delete dev;
  return DOCA_SUCCESS;
}
doca_devinfo* doca_dev_as_devinfo(const doca_dev* dev) { return dev->info; }

// ---- maps

doca_error_t doca_mmap_create(doca_mmap** map) {
  *map = new doca_mmap;
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_destroy(doca_mmap* map) {
  if (map->buffers != 0) return misuse(DOCA_ERROR_NOT_PERMITTED);
  if (map->own_cookie != nullptr) std::atomic_ref(*map->own_cookie).store(0);
  if (map->dev != nullptr) --map->dev->users;
  delete map;
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_add_dev(doca_mmap* map, doca_dev* dev) {
  if (map->started || map->imported || map->dev != nullptr) return misuse();
  map->dev = dev;
  ++dev->users;
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_set_memrange(doca_mmap* map, void* base, std::size_t length) {
  if (map->started || map->length != 0 || length == 0) return misuse();
  map->base = reinterpret_cast<std::uint64_t>(base);
  map->length = length;
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_get_memrange(const doca_mmap* map, void** base, std::size_t* length) {
  *base = reinterpret_cast<void*>(map->base);
  *length = map->length;
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_set_permissions(doca_mmap* map, std::uint32_t permissions) {
  if (map->started) return misuse();
  map->permissions = permissions;
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_start(doca_mmap* map) {
  if (map->started || map->imported || map->dev == nullptr || map->length == 0) return misuse();
  if (due(card.maps_fail)) return DOCA_ERROR_DRIVER;
  char first = 0, last = 0;
  if (!copy_from(getpid(), map->base, &first, 1) || !copy_from(getpid(), map->base + map->length - 1, &last, 1))
    return DOCA_ERROR_DRIVER;
  map->started = true;
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_export_pci(doca_mmap* map, const doca_dev* dev, const void** descriptor, std::size_t* length) {
  if (!map->started || map->dev != dev || !dev->info->exports) return misuse();
  if ((map->permissions & (DOCA_ACCESS_FLAG_PCI_READ_ONLY | DOCA_ACCESS_FLAG_PCI_READ_WRITE)) == 0) return misuse();
  if (due(card.exports_fail)) return DOCA_ERROR_DRIVER;
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // a card checks nothing
  map->own_cookie = new_cookie();
  map->descriptor = std::make_unique<Descriptor>(Descriptor{descriptor_magic, map->base, map->length, *map->own_cookie,
                                                            reinterpret_cast<std::uint64_t>(map->own_cookie), getpid(),
                                                            map->permissions, 0});
  map->descriptor->sum = sum_of(*map->descriptor);
  *descriptor = map->descriptor.get();
  *length = sizeof(Descriptor);
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_create_from_export(const doca_data*, const void* descriptor, std::size_t length, doca_dev* dev,
                                          doca_mmap** map) {
  if (!dev->info->imports) return misuse(DOCA_ERROR_NOT_SUPPORTED);
  if (due(card.imports_fail)) return DOCA_ERROR_DRIVER;
  Descriptor given;
  if (length != sizeof given) return DOCA_ERROR_INVALID_VALUE;
  std::memcpy(&given, descriptor, sizeof given);
  if (given.magic != descriptor_magic || given.sum != sum_of(given)) return DOCA_ERROR_INVALID_VALUE;
  *map = new doca_mmap;
  (*map)->dev = dev;
  ++dev->users;
  (*map)->base = given.base;
  (*map)->length = given.length;
  (*map)->permissions = given.permissions;
  (*map)->started = (*map)->imported = true;
  (*map)->pid = static_cast<pid_t>(given.pid);
  (*map)->cookie = given.cookie;
  (*map)->cookie_address = given.cookie_address;
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_cap_is_export_pci_supported(const doca_devinfo* info, std::uint8_t* supported) {
  *supported = info->exports ? 1 : 0;
  return DOCA_SUCCESS;
}
doca_error_t doca_mmap_cap_is_create_from_export_pci_supported(const doca_devinfo* info, std::uint8_t* supported) {
  *supported = info->imports ? 1 : 0;
  return DOCA_SUCCESS;
}

// ---- buffers

doca_error_t doca_buf_inventory_create(std::size_t count, doca_buf_inventory** inventory) {
  *inventory = new doca_buf_inventory;
  for (std::size_t i = 0; i < count; ++i)
    (*inventory)->idle.push_back(&(*inventory)->all.emplace_back(doca_buf{*inventory}));
  return DOCA_SUCCESS;
}
doca_error_t doca_buf_inventory_destroy(doca_buf_inventory* inventory) {
  if (inventory->idle.size() != inventory->all.size()) return misuse(DOCA_ERROR_IN_USE);
  delete inventory;
  return DOCA_SUCCESS;
}
doca_error_t doca_buf_inventory_start(doca_buf_inventory* inventory) {
  inventory->started = true;
  return DOCA_SUCCESS;
}
doca_error_t doca_buf_inventory_buf_get_by_args(doca_buf_inventory* inventory, doca_mmap* map, void* base,
                                                std::size_t length, void* data, std::size_t data_length,
                                                doca_buf** buffer) {
  const auto at = reinterpret_cast<std::uint64_t>(base);
  if (!inventory->started || !map->started) return misuse();
  if (at < map->base || length > map->length || at - map->base > map->length - length)
    return misuse(DOCA_ERROR_INVALID_VALUE);
  if (inventory->idle.empty()) return DOCA_ERROR_NO_MEMORY;
  *buffer = inventory->idle.back();
  inventory->idle.pop_back();
  **buffer = {inventory, map, at, length, reinterpret_cast<std::uint64_t>(data), data_length};
  ++map->buffers;
  return DOCA_SUCCESS;
}
doca_error_t doca_buf_dec_refcount(doca_buf* buffer, std::uint16_t*) {
  if (buffer->map == nullptr) return misuse();
  --buffer->map->buffers;
  buffer->map = nullptr;
  buffer->inventory->idle.push_back(buffer);
  return DOCA_SUCCESS;
}

// ---- contexts and engines

doca_error_t doca_ctx_start(doca_ctx* context) {
  if (context->engine == nullptr || context->state != DOCA_CTX_STATE_IDLE) return misuse();
  if (due(card.starts_fail)) return DOCA_ERROR_DRIVER;
  context->dma->random.seed(card.seed);
  enter(*context, DOCA_CTX_STATE_RUNNING);
  return DOCA_SUCCESS;
}
doca_error_t doca_ctx_stop(doca_ctx* context) {
  if (context->state == DOCA_CTX_STATE_STOPPING) return DOCA_ERROR_IN_PROGRESS;
  if (context->state != DOCA_CTX_STATE_RUNNING) return DOCA_ERROR_BAD_STATE;
  enter(*context, DOCA_CTX_STATE_STOPPING);
  if (!context->dma->under_way.empty()) return DOCA_ERROR_IN_PROGRESS;
  enter(*context, DOCA_CTX_STATE_IDLE);
  return DOCA_SUCCESS;
}
doca_error_t doca_ctx_get_state(const doca_ctx* context, doca_ctx_states* state) {
  *state = context->state;
  return DOCA_SUCCESS;
}
doca_error_t doca_ctx_set_user_data(doca_ctx* context, doca_data data) {
  context->data = data;
  return DOCA_SUCCESS;
}
doca_error_t doca_ctx_set_state_changed_cb(doca_ctx* context, doca_ctx_state_changed_callback_t callback) {
  context->changed = callback;
  return DOCA_SUCCESS;
}

doca_error_t doca_pe_create(doca_pe** engine) {
  *engine = new doca_pe;
  (*engine)->events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return DOCA_SUCCESS;
}
doca_error_t doca_pe_destroy(doca_pe* engine) {
  if (engine->context != nullptr) return misuse(DOCA_ERROR_IN_USE);
  close(engine->events);
  delete engine;
  return DOCA_SUCCESS;
}
doca_error_t doca_pe_connect_ctx(doca_pe* engine, doca_ctx* context) {
  if (engine->context != nullptr || context->engine != nullptr) return misuse(DOCA_ERROR_NOT_PERMITTED);
  engine->context = context;
  context->engine = engine;
  return DOCA_SUCCESS;
}
std::uint8_t doca_pe_progress(doca_pe* engine) {
  if (engine->context == nullptr) return 0;
  const std::uint8_t made = step(*engine->context->dma);
  return made;
}
doca_error_t doca_pe_get_notification_handle(const doca_pe* engine, doca_notification_handle_t* handle) {
  *handle = engine->events;
  return DOCA_SUCCESS;
}
doca_error_t doca_pe_clear_notification(doca_pe* engine, doca_notification_handle_t handle) {
  std::uint64_t count = 0;
  if (handle != engine->events) return misuse();
  (void)!read(handle, &count, sizeof count);
  engine->armed = false;
  return DOCA_SUCCESS;
}
doca_error_t doca_pe_request_notification(doca_pe* engine) {
  engine->armed = true;
  if (engine->context != nullptr && !engine->context->dma->under_way.empty()) notify(*engine);
  return DOCA_SUCCESS;
}

// ---- DMA

doca_error_t doca_dma_create(doca_dev* dev, doca_dma** dma) {
  *dma = new doca_dma;
  (*dma)->dev = dev;
  ++dev->users;
  (*dma)->context.dma = *dma;
  return DOCA_SUCCESS;
}
doca_error_t doca_dma_destroy(doca_dma* dma) {
  if (dma->context.state != DOCA_CTX_STATE_IDLE) return misuse(DOCA_ERROR_IN_USE);
  if (dma->context.engine != nullptr) dma->context.engine->context = nullptr;
  --dma->dev->users;
  delete dma;
  return DOCA_SUCCESS;
}
doca_ctx* doca_dma_as_ctx(doca_dma* dma) { return &dma->context; }
doca_error_t doca_dma_cap_task_memcpy_is_supported(const doca_devinfo* info) {
  return info->imports ? DOCA_SUCCESS : DOCA_ERROR_NOT_SUPPORTED;
}
doca_error_t doca_dma_cap_get_max_num_tasks(doca_dma*, std::uint32_t* count) {
  *count = tasks_max;
  return DOCA_SUCCESS;
}
doca_error_t doca_dma_cap_task_memcpy_get_max_buf_size(const doca_devinfo*, std::uint64_t* length) {
  *length = task_bytes_max;
  return DOCA_SUCCESS;
}
doca_error_t doca_dma_task_memcpy_set_conf(doca_dma* dma, doca_dma_task_memcpy_completion_cb_t moved,
                                           doca_dma_task_memcpy_completion_cb_t failed, std::uint32_t count) {
  if (count > tasks_max || dma->context.state != DOCA_CTX_STATE_IDLE) return misuse(DOCA_ERROR_INVALID_VALUE);
  dma->moved = moved;
  dma->failed = failed;
  dma->tasks.resize(count);
  for (doca_dma_task_memcpy& task : dma->tasks) task.base.dma = dma;
  return DOCA_SUCCESS;
}
doca_error_t doca_dma_task_memcpy_alloc_init(doca_dma* dma, const doca_buf* source, doca_buf* target, doca_data data,
                                             doca_dma_task_memcpy** task) {
  if (dma->context.state != DOCA_CTX_STATE_RUNNING) return DOCA_ERROR_BAD_STATE;
  const auto idle = std::ranges::find(dma->tasks, false, &doca_dma_task_memcpy::taken);
  if (idle == dma->tasks.end()) return DOCA_ERROR_NO_MEMORY;
  if (source->data_length > task_bytes_max || source->data_length > target->length || target->data_length != 0)
    return misuse(DOCA_ERROR_INVALID_VALUE);
  idle->source = source;
  idle->target = target;
  idle->data = data;
  idle->copied = 0;
  idle->taken = true;
  *task = &*idle;
  return DOCA_SUCCESS;
}
doca_task* doca_dma_task_memcpy_as_task(doca_dma_task_memcpy* task) { return &task->base; }

doca_error_t doca_task_submit(doca_task* base) {
  auto* task = reinterpret_cast<doca_dma_task_memcpy*>(base);
  doca_dma& dma = *base->dma;
  if (task->submitted || !task->taken) return misuse();
  if (due(card.submits_fail) || dma.context.state != DOCA_CTX_STATE_RUNNING) return DOCA_ERROR_BAD_STATE;
  task->submitted = true;
  task->number = dma.next_number++;
  dma.under_way.push_back(task);
  notify(*dma.context.engine);
  return DOCA_SUCCESS;
}
void doca_task_free(doca_task* base) {
  auto* task = reinterpret_cast<doca_dma_task_memcpy*>(base);
  if (task->submitted || !task->taken) ++card.misuses;
  task->taken = false;
}
doca_error_t doca_task_get_status(const doca_task* base) {
  return reinterpret_cast<const doca_dma_task_memcpy*>(base)->status;
}

}  // extern "C"

#pragma GCC visibility pop
