// runc-lab: runc without two requests that a test machine may refuse. Lowering oom_score_adj needs CAP_SYS_RESOURCE, and
// hugetlb limits need that controller. containerd has settings for both; CRI-O has none.
//
// It renames the two keys in the bundle's config.json in place, to names of equal length that runc ignores.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const KEYS[][2] = {{"\"oomScoreAdj\"", "\"-omScoreAdj\""}, {"\"hugepageLimits\"", "\"-ugepageLimits\""}};

static void rename_keys(const char *bundle) {
    char path[4096];
    struct stat status;
    snprintf(path, sizeof path, "%s/config.json", bundle);
    int file = open(path, O_RDWR);
    if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0) return;
    size_t size = (size_t)status.st_size;
    char *text = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (text == MAP_FAILED) return;
    for (size_t key = 0; key < sizeof KEYS / sizeof KEYS[0]; key++) {
        size_t length = strlen(KEYS[key][0]);
        for (char *at; (at = memmem(text, size, KEYS[key][0], length));) memcpy(at, KEYS[key][1], length);
    }
    munmap(text, size);
    close(file);
}

int main(int count, char **arguments) {
    int creates = 0;
    for (int at = 1; at < count; at++) {
        creates |= strcmp(arguments[at], "create") == 0;
        if (!creates) continue;
        if (strncmp(arguments[at], "--bundle=", 9) == 0) rename_keys(arguments[at] + 9);
        if ((strcmp(arguments[at], "--bundle") == 0 || strcmp(arguments[at], "-b") == 0) && at + 1 < count)
            rename_keys(arguments[at + 1]);
    }
    execv("/usr/sbin/runc", arguments);
    perror("runc-lab: start /usr/sbin/runc");
    return 127;
}
