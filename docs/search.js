// The theme looks for every word of a question as the beginning of a word, so "a" finds half of all pages, and "renaming"
// does not find "rename". Before a question goes to the theme's worker, its small words and its endings are taken out.
const SMALL = new Set(("a an and are as at by can do does for from how i in into is it its many my of on one or several the " +
  "to what when where which who why with without").split(" "));

function plain(question) {
  const words = question.split(/\s+/).filter((word) => !SMALL.has(word.toLowerCase()));
  const stems = words.map((word) => (/^[a-z]+$/.test(word) ? word.replace(/^(.{3,}?)(?:ing|ed|e?s)$/, "$1") : word));
  return words.length ? stems.join(" ") : question;
}

const QUERY = 2;
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...more) {
  const isQuestion = message && message.type === QUERY && typeof message.data === "string";
  return post.call(this, isQuestion ? { ...message, data: plain(message.data) } : message, ...more);
};
