/* Offpath, the interface of functions that run on the agent.
 *
 * A plug-in is a shared object that an agent's configuration names ([[plugin]], docs/guides/plugins.md). The agent
 * never loads it itself: it starts worker processes, each of which loads one plug-in and runs one call of it at a time.
 * So a function that crashes, loops or leaks fails its own call and nothing else.
 *
 *     #include <offpath/plugin.h>
 *
 *     static int32_t count_bytes(ofp_context *context) {
 *       uint64_t *sum = context->output(context, "bytes", sizeof *sum, 0);
 *       if (sum == NULL) return 1;                      // the context has the reason
 *       for (uint64_t i = 0; i < context->input_count; ++i) *sum += context->inputs[i]->bytes;
 *       return 0;
 *     }
 *
 *     static const ofp_function functions[] = {{"count_bytes", count_bytes, "Sums up the sizes of all inputs."}};
 *     static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "sizes", 1, functions};
 *     OFP_PLUGIN_EXPORT const ofp_plugin *offpath_plugin(void) { return &plugin; }
 *
 * Build it with `cc -shared -fPIC`. A plug-in links with no library of Offpath; everything it may call is in the
 * context.
 *
 * Conventions
 *   - Sizes are bytes, times nanoseconds of CLOCK_MONOTONIC.
 *   - Pointers that a function gets belong to the worker. They are valid during the call, unless stated otherwise.
 *   - Structures with `struct_bytes` grow at their end. Use a member that was added later only if it exists:
 *     OFP_HAS(context, member).
 *   - A function is called by one thread, always the same one of its process, and once at a time. It may start threads
 *     of its own (OpenMP), which may call the context as well. They must not touch inputs, outputs or the context after
 *     the function has returned.
 *   - Static variables live as long as the worker: from call to call, until it is killed or crashes. Several workers of
 *     one plug-in share nothing. Any worker may get a call, but tasks of one lane all go to the same one while it
 *     lives.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef OFFPATH_PLUGIN_H
#define OFFPATH_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OFP_PLUGIN_EXPORT __attribute__((visibility("default")))

/* The version of these structures and their meaning. A worker refuses a plug-in of another version, and names both.
 * Members that are added at the end of a structure do not change it. */
#define OFP_PLUGIN_VERSION 1u

/* Whether a structure with `struct_bytes` has `member`. */
#define OFP_HAS(pointer, member) \
  ((size_t)((const char*)(&(pointer)->member + 1) - (const char*)(pointer)) <= (pointer)->struct_bytes)

/* Flags of inputs and outputs. */
#define OFP_DATA_ARROW \
  1u /* an Arrow IPC stream: schema, record batches, end-of-stream mark; buffers 8-byte aligned at least */
#define OFP_DATA_UNSET 2u /* for an output: the function writes every byte, so it is not zeroed */

/* One object that the function works on. Read-only: writing to it ends the worker. */
typedef struct ofp_input {
  uint32_t struct_bytes;
  uint32_t flags;     /* OFP_DATA_ARROW, or plain bytes */
  const void* row;    /* key of the object; of a task's input: empty. Not terminated by NUL */
  const void* column; /* key within the row; of a task's input: its name. Not terminated by NUL */
  uint64_t row_bytes;
  uint64_t column_bytes;
  const void* data; /* page aligned (4096); not NULL, even where `bytes` is 0 */
  uint64_t bytes;
} ofp_input;

/* An output that a task has named: output() with that name and at most that size goes to its program. */
typedef struct ofp_room {
  uint32_t struct_bytes;
  uint32_t zero;
  const char* name; /* terminated by NUL */
  uint64_t bytes;
} ofp_room;

/* Levels of log(). */
typedef enum ofp_log_level {
  OFP_LOG_DEBUG = 0,
  OFP_LOG_INFO = 1,
  OFP_LOG_WARNING = 2,
  OFP_LOG_ERROR = 3
} ofp_log_level;

/* What send() and receive() return: the numbers of offpath.h. */
typedef enum ofp_message_status {
  OFP_MESSAGE_OK = 0,
  OFP_MESSAGE_TIMEOUT =
      2, /* the call's deadline is near: a tenth of its time is left, at most 100 ms, for the function to return */
  OFP_MESSAGE_INVALID = 3, /* there is no such lane */
  OFP_MESSAGE_TAKEN =
      5, /* a session on another agent has claimed this lane of the team at the same time, and keeps it */
  OFP_MESSAGE_TOO_LARGE =
      7, /* receive: the room is smaller, and the message stays. send: more than OFP_MESSAGE_BYTES_MAX */
  OFP_MESSAGE_LOST = 13, /* that lane is gone: its session was closed, its program or its agent has died */
  OFP_MESSAGE_NO_MEMORY = 16,
  OFP_MESSAGE_UNSUPPORTED =
      19, /* the session has no team; or without an agent: the lane is another one than the function's own */
  OFP_MESSAGE_CANCELLED = 21 /* the caller has cancelled this call */
} ofp_message_status;
#define OFP_MESSAGE_BYTES_MAX 268435456u /* 256 MiB, of one message */

typedef struct ofp_context ofp_context;

/* One call. The worker makes and owns it. */
struct ofp_context {
  uint32_t struct_bytes;
  uint32_t reserved;     /* 0 */
  const char* function;  /* its name, terminated by NUL: one C function may serve several names */
  const void* arguments; /* the caller's bytes, unchanged; 8-byte aligned, not NULL */
  uint64_t arguments_bytes;
  uint64_t input_count;
  const ofp_input* const* inputs; /* in the order of the caller; of a row: by column */
  int64_t deadline_ns;            /* of CLOCK_MONOTONIC. Then the worker is killed and the call fails */

  /* Memory of `bytes` bytes for a result: zeroed, page aligned (4096), writable until the function returns. It is
   * shared memory and goes to the caller without a copy. `name` distinguishes the results of one call: at most 255
   * bytes, each name once; NULL is the empty name. In the pool's compute an output becomes the object of that
   * column. `flags`: OFP_DATA_ARROW if it will be an Arrow IPC stream. Returns NULL if the limit of the plug-in's
   * memory or of outputs (250) is reached or the name was used; the reason becomes the error message of the call,
   * unless the function sets another. Outputs of a function that fails are dropped. */
  void* (*output)(ofp_context* context, const char* name, uint64_t bytes, uint32_t flags);

  /* Makes an output shorter, to `bytes`. Returns 0, or -1 if there is no such output or it has fewer bytes. */
  int32_t (*shrink)(ofp_context* context, void* output, uint64_t bytes);

  /* Time until the deadline; 0 when it has passed. */
  int64_t (*time_left_ns)(const ofp_context* context);

  /* 1 if the caller has cancelled, or the deadline has passed. A function that returns soon after (100 ms) keeps its
   * worker; otherwise the worker is killed. Costs a load and reading the clock. */
  int32_t (*cancelled)(const ofp_context* context);

  /* The message of the call's failure: UTF-8, copied, cut at 1000 bytes. Ignored if the function returns 0. */
  void (*set_error)(ofp_context* context, const char* message);

  /* Writes one line, copied, to the agent's log, which names plug-in and function. At most 1000 bytes a line and 100
   * lines a call; the rest is dropped. */
  void (*log)(ofp_context* context, ofp_log_level level, const char* line);

  /* For a task (offpath.h); otherwise 0. */
  uint64_t session;     /* the program's session, such as a static variable may be filled for */
  uint64_t worker;      /* the worker process; the program learns it, too */
  uint32_t lane, lanes; /* as the program has opened its session; lanes 0: none */
  uint64_t room_count;
  const ofp_room* rooms; /* the outputs that the task has named, in its order */

  /* Messages to and from functions that run for the lanes of this session's team (ofp_tasks_options.team), its own lane
   * included, on all agents of the group. Check first that they exist: OFP_HAS(context, receive).
   *
   * Messages from one lane to another under one tag arrive in the order of sending; different tags do not wait for each
   * other. A message outlives the call that sent it, until it is received or the sender's session ends. Both functions
   * return ofp_message_status. The reason of a failure becomes the error message of the call, unless the function sets
   * another. Several threads of a function may call them. */

  /* Copies `bytes` bytes from `data` and returns without waiting for a receive. It waits for room only while messages
   * that were not received take all memory for this lane or for the agent. `data` may be NULL if `bytes` is 0. */
  int32_t (*send)(ofp_context* context, uint32_t lane, uint32_t tag, const void* data, uint64_t bytes);

  /* Waits for the oldest message of `lane` under `tag` and copies it to `into`, which has room for `room` bytes.
   * `bytes` (may be NULL) is set to its size, also with OFP_MESSAGE_TOO_LARGE, after which the next receive gets the
   * same message (`room` 0 asks for the size). */
  int32_t (*receive)(ofp_context* context, uint32_t lane, uint32_t tag, void* into, uint64_t room, uint64_t* bytes);
};

/* Returns 0 on success; its outputs are the result. Any other number is a failure: the caller gets OFP_FUNCTION_FAILED
 * with the message that was set and this number. A C++ exception that leaves the function is a failure, too. */
typedef int32_t (*ofp_function_pointer)(ofp_context* context);

typedef struct ofp_function {
  const char* name; /* 1 to 64 bytes: letters, digits, _ . - */
  ofp_function_pointer function;
  const char*
      doc; /* for people: what it does, its arguments, inputs and outputs. At most 200 bytes are shown. May be NULL */
} ofp_function;

/* A plug-in. It and everything it points to stay unchanged as long as the process lives. */
typedef struct ofp_plugin {
  uint32_t version;        /* OFP_PLUGIN_VERSION */
  uint32_t struct_bytes;   /* sizeof(ofp_plugin) */
  const char* name;        /* for logs; calls name a plug-in as the agent's configuration does */
  uint32_t function_count; /* 1 to 128 */
  const ofp_function* functions;
} ofp_plugin;

/* The one symbol that a plug-in has to export, named "offpath_plugin". The worker calls it once, after loading; NULL
 * means that the plug-in cannot be used here. */
typedef const ofp_plugin* (*ofp_plugin_entry)(void);

OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
