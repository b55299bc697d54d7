/* Offpath, the C interface of a host program: tasks. offpath/offpath.h includes it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef OFFPATH_TASKS_H
#define OFFPATH_TASKS_H

#include <offpath/offpath.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tasks -----------------------------------------------------------------------------------
 *
 * A task is a function of a plug-in (offpath/plugin.h) over memory of this program: the agent pulls the inputs, a
 * worker runs the function, and the agent pushes the outputs and completes the task (docs/guides/tasks.md). Meanwhile
 * this program continues.
 *
 *     ofp_tasks *tasks;
 *     ofp_tasks_options options = {.struct_bytes = sizeof options, .lane = rank, .lanes = ranks};
 *     ofp_tasks_open(channel, &options, &tasks, &error);
 *     ofp_task_input in[] = {{.name = "x", .data = x, .bytes = n * 24}};
 *     ofp_task_output out[] = {{.name = "f", .data = ofp_segment_data(forces), .bytes = n * 24}};
 *     ofp_task_request request = {.struct_bytes = sizeof request, .function = "md/force",
 *                                 .inputs = in, .inputs_count = 1, .outputs = out, .outputs_count = 1};
 *     ofp_task *task;
 *     ofp_task_submit(tasks, &request, &task, &error);
 *     ofp_task_wait_pulled(task, OFP_FOREVER, &error);   // x is mine again
 *     // ... compute on something else ...
 *     ofp_task_wait(task, OFP_FOREVER, &error);          // f is there
 *     ofp_task_free(task);
 */

struct ofp_task_info;
typedef struct ofp_tasks ofp_tasks; /* a session of tasks; usable by several threads */
typedef struct ofp_task ofp_task;   /* one task; used by one thread at a time */

typedef struct ofp_task_plugin {
  const char* name;
  const char* path; /* of the shared object, on this machine */
} ofp_task_plugin;

typedef struct ofp_tasks_options {
  uint32_t struct_bytes;
  uint32_t lane,
      lanes; /* tasks of a lane run in the order of submission, on one worker of a plug-in (without a team on worker
                `lane`, modulo their number), whose static variables are state. lanes 0: any order, any worker */
  uint32_t tasks_max; /* under way at a time; 0: 64 */
  /* Plug-ins whose functions this program can run itself (ofp_task_run, or without a channel). If the agent permits
   * it (task.user_plugins), the agent also runs those at absolute paths, as this program's user */
  const ofp_task_plugin* plugins;
  uint32_t plugins_count;
  uint32_t zero;
  const char*
      team; /* functions of sessions of this user with the same team and `lanes` send each other messages
               (offpath/plugin.h: send, receive), on all agents of a group. A lane belongs to one session (otherwise
               OFP_EXISTS). Use a name for one run, such as the job's name and number. NULL: none. Takes a lane */
} ofp_tasks_options;

/* `channel` NULL: functions run in this program (`plugins`), in the thread that waits for a task or checks whether it
 * is over, in the order of submission. A function that does not return is not stopped. */
OFP_API int ofp_tasks_open(ofp_channel* channel, const ofp_tasks_options* options, ofp_tasks** tasks, ofp_error* error);
/* Cancels tasks under way and drops inputs that stayed on the agent. Call it before ofp_close. */
OFP_API void ofp_tasks_close(ofp_tasks* tasks);

typedef struct ofp_task_input {
  const char* name; /* inputs that follow each other under one name are pieces of one, which the function sees whole */
  const void* data; /* announced if it is not. NULL, with a version: the agent must have that version */
  uint64_t bytes;
  uint64_t version; /* not 0: the input stays on the agent, and is not pulled if the agent has this version */
  /* not 0: if the agent has that version, only the part given by the next two is pulled */
  uint64_t changed_from;
  uint64_t changed_at, changed_bytes;
} ofp_task_input;

typedef struct ofp_task_output {
  const char* name;
  void* data;       /* in memory of ofp_alloc. NULL: it is not pushed */
  uint64_t bytes;   /* at most; the function decides how many */
  uint64_t version; /* not 0: the output stays on the agent as an input of that name and version */
} ofp_task_output;

typedef struct ofp_task_request {
  uint32_t struct_bytes;
  uint32_t flags;        /* 0 */
  const char* function;  /* "plug-in/function", with the name of the plug-in in the agent's configuration */
  const void* arguments; /* copied; at most 32 KiB */
  uint64_t arguments_bytes;
  const ofp_task_input* inputs;
  const ofp_task_output* outputs;
  uint32_t inputs_count, outputs_count; /* at most 128 names each; inputs at most 1024 pieces */
  ofp_task* const*
      after; /* tasks of the same channel: this one begins (its inputs are pulled) when they have succeeded. If one of
                them fails, this one fails with OFP_CANCELLED, that task's name and reason */
  uint32_t after_count; /* at most 64 */
  uint32_t zero;
  int64_t wait_ns; /* for the whole task, which then ends with OFP_TIMEOUT. 0 or OFP_FOREVER: the plug-in's time */
} ofp_task_request;

/* Posts a request and returns. Inputs must not change until they are pulled, and outputs belong to the agent until
 * the task is over. OFP_WOULD_BLOCK: `tasks_max` are under way, or the ring is full. */
OFP_API int ofp_task_submit(ofp_tasks* tasks, const ofp_task_request* request, ofp_task** task, ofp_error* error);
/* OFP_OK: it has succeeded, and its outputs are there. OFP_WOULD_BLOCK: it continues (after `wait_ns`; 0 only looks
 * at this program's memory). Other codes are its failure; OFP_PEER_LOST: its agent is gone. May be called again. */
OFP_API int ofp_task_wait(ofp_task* task, int64_t wait_ns, ofp_error* error);
/* The next task of this session that is over, successful or not (ofp_task_wait says which). Each task that was not
 * freed is returned once, in the order in which this program learns of the ends; the caller frees the handle.
 * OFP_WOULD_BLOCK: none within `wait_ns`; ofp_event_fd becomes readable when there may be one. OFP_NOT_FOUND: none
 * is under way, and all were returned. When the agent is gone, every task is over. */
OFP_API int ofp_tasks_next(ofp_tasks* tasks, int64_t wait_ns, ofp_task** task, ofp_error* error);
/* As ofp_task_wait, for its inputs. OFP_OK: they are this program's again. */
OFP_API int ofp_task_wait_pulled(ofp_task* task, int64_t wait_ns, ofp_error* error);
/* Submits, and waits until it is over. If the agent is gone or dies meanwhile, this program runs the function itself
 * if `plugins` has its plug-in: inputs and outputs are where they were. `info` may be NULL. */
OFP_API int ofp_task_run(ofp_tasks* tasks, const ofp_task_request* request, struct ofp_task_info* info,
                         ofp_error* error);
/* The task ends soon with OFP_CANCELLED, or successfully if its outputs were being pushed. A function that does not
 * return is killed. */
OFP_API int ofp_task_cancel(ofp_task* task, ofp_error* error);
/* Cancels the task if it is not over. Its outputs may be written until ofp_tasks_close. */
OFP_API void ofp_task_free(ofp_task* task);

typedef struct ofp_task_info {
  uint32_t struct_bytes;
  uint32_t here;   /* this program ran it itself */
  uint64_t worker; /* the worker process: after a change, static variables have their initial values */
  int64_t pulled_ns, queued_ns, ran_ns,
      pushed_ns; /* how long inputs, waiting, function and outputs took, on the agent */
  uint64_t pulled_bytes, pushed_bytes;
} ofp_task_info;
/* For a task that has succeeded; OFP_WOULD_BLOCK before. */
OFP_API int ofp_task_info_get(ofp_task* task, ofp_task_info* info, ofp_error* error);
/* How many bytes the function has written to output `index`. */
OFP_API int ofp_task_output_bytes(ofp_task* task, uint32_t index, uint64_t* bytes, ofp_error* error);

#ifdef __cplusplus
}
#endif
#endif
