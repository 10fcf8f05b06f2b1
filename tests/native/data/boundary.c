/* A C program at the boundary of a model's library, whose path is its first argument. What it does, the second says:
 *
 *   run      computes with one thread, with several, in a pool of this program, and by the packed function
 *   fork     does so in this process and in children
 *   reload   loads the library, runs the model and unloads it a hundred times, and looks for what has grown
 *
 * Exits with 0 when all results were equal and nothing grew. */
#define _GNU_SOURCE
#include "boundary.h"

#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, RUNS = 3, LOADS = 100, FIRST_LOADS = 20 };

typedef struct Library {
  void *handle;
  const RbModelApi *api;
  RbPackedFunction packed;
} Library;

static Library load(const char *path) {
  Library library;
  RbModelEntry entry;
  library.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library.handle) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  *(void **)&entry = dlsym(library.handle, RELAYBUILD_MODEL_ENTRY);
  *(void **)&library.packed = dlsym(library.handle, "__tvm_ffi_main");
  CHECK(entry && library.packed);
  library.api = entry();
  return library;
}

typedef struct Job {
  void (*task)(void *, int32_t);
  void *argument;
  int32_t thread;
} Job;

static void *work(void *argument) {
  const Job *job = argument;
  job->task(job->argument, job->thread);
  return NULL;
}

static int32_t run_in_threads(void *context, void (*task)(void *, int32_t), void *argument, int32_t count) {
  Job jobs[THREADS];
  pthread_t threads[THREADS];
  (void)context;
  for (int32_t i = 1; i < count; ++i) {
    jobs[i] = (Job){task, argument, i};
    CHECK(!pthread_create(&threads[i], NULL, work, &jobs[i]));
  }
  task(argument, 0);
  for (int32_t i = 1; i < count; ++i) {
    CHECK(!pthread_join(threads[i], NULL));
  }
  return 0;
}

static const RbThreadPool pool = {NULL, THREADS, run_in_threads};

static void run(const RbModelApi *api, RbInstance *instance, const Call *expected) {
  for (int i = 0; i < RUNS; ++i) {
    Call call;
    call_open(&call, api->describe(), 1);
    const RbStatus status = call_run(&call, api, instance);
    if (status) {
      fprintf(stderr, "run: status %d: %s\n", (int)status, api->last_error());
      exit(1);
    }
    CHECK(same_outputs(&call, expected));
    call_close(&call);
  }
}

static RbInstance *create(const RbModelApi *api, int32_t threads, const RbThreadPool *chosen) {
  const RbCreateOptions options = {sizeof options, threads, chosen};
  RbInstance *instance;
  CHECK(api->create_with(&options, &instance) == RB_OK);
  return instance;
}

static void run_in_all_ways(const Library *library, const Call *expected) {
  const RbThreadPool *const pools[] = {NULL, NULL, &pool};
  const int32_t threads[] = {1, THREADS, THREADS};
  for (int i = 0; i < 3; ++i) {
    RbInstance *instance = create(library->api, threads[i], pools[i]);
    run(library->api, instance, expected);
    library->api->destroy(instance);
  }
  Call call;
  call_open(&call, library->api->describe(), 1);
  CHECK(call_packed(&call, library->packed) == 0 && same_outputs(&call, expected));
  call_close(&call);
}

static void wait_for(pid_t child) {
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* Instances that were made, and have run, before the children began work in these as well as in the parent. */
static void run_in_children(const Library *library, const Call *expected) {
  RbInstance *own = create(library->api, THREADS, NULL), *lent = create(library->api, THREADS, &pool);
  for (int round = 0; round < 3; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      run(library->api, own, expected);
      run(library->api, lent, expected);
      run_in_all_ways(library, expected);
      library->api->destroy(own);
      library->api->destroy(lent);
      _exit(0);
    }
    wait_for(child);
    run(library->api, own, expected);
    run(library->api, lent, expected);
    run_in_all_ways(library, expected);
  }
  library->api->destroy(own);
  library->api->destroy(lent);
}

static long entries(const char *path) {
  DIR *folder = opendir(path);
  CHECK(folder);
  long count = 0;
  while (readdir(folder)) {
    ++count;
  }
  closedir(folder);
  return count;
}

typedef struct Process {
  long threads, files, mappings, kilobytes;
  size_t allocated;
} Process;

static Process measure(void) {
  Process now = {entries("/proc/self/task"), entries("/proc/self/fd"), 0, 0, mallinfo2().uordblks};
  char line[4096];
  FILE *maps = fopen("/proc/self/maps", "r"), *sizes = fopen("/proc/self/smaps_rollup", "r");
  CHECK(maps && sizes);
  while (fgets(line, sizeof line, maps)) {
    now.mappings += strchr(line, '\n') != NULL;
  }
  while (fgets(line, sizeof line, sizes)) { /* what "status" says is only about right */
    sscanf(line, "Rss: %ld kB", &now.kilobytes);
  }
  fclose(maps);
  fclose(sizes);
  return now;
}

static void load_again_and_again(const char *path, const Call *expected) {
  Process first = {0};
  for (int i = 0; i < LOADS; ++i) {
    const Library library = load(path);
    run_in_all_ways(&library, expected);
    CHECK(!dlclose(library.handle));
    if (i == FIRST_LOADS) {
      CHECK(!dlopen(path, RTLD_NOW | RTLD_NOLOAD));
      dlerror();
      first = measure();
    }
  }
  const Process last = measure();
  fprintf(stdout, "threads %+ld, files %+ld, mappings %+ld, memory %+ld kB, allocated %+ld bytes\n",
          last.threads - first.threads, last.files - first.files, last.mappings - first.mappings,
          last.kilobytes - first.kilobytes, (long)last.allocated - (long)first.allocated);
  CHECK(last.threads == first.threads && last.files == first.files);
  CHECK(last.mappings <= first.mappings + 1 && last.kilobytes <= first.kilobytes + 1024);
  CHECK(last.allocated == first.allocated);
}

int main(int count, char **words) {
  CHECK(count == 3);
  mallopt(M_ARENA_MAX, 1); /* else the memory depends on which threads met */
  const Library library = load(words[1]);
  Call expected;
  call_open(&expected, library.api->describe(), 1);
  RbInstance *instance = create(library.api, 1, NULL);
  CHECK(call_run(&expected, library.api, instance) == RB_OK);
  library.api->destroy(instance);
  if (!strcmp(words[2], "run")) {
    run_in_all_ways(&library, &expected);
  } else if (!strcmp(words[2], "fork")) {
    run_in_children(&library, &expected);
  } else {
    CHECK(!strcmp(words[2], "reload") && !dlclose(library.handle));
    load_again_and_again(words[1], &expected);
    call_close(&expected);
    return 0;
  }
  call_close(&expected);
  CHECK(!dlclose(library.handle));
  return 0;
}
