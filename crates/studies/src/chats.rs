//! Chats for fine-tuning, with the answer last.

use probity_lm::{Message, Prompt, Role};
use serde::Serialize;

use crate::{MethodError, Run};

#[derive(Serialize)]
struct Chat {
    messages: Vec<Message>,
}

impl Chat {
    fn new(prompt: Prompt, answer: &str) -> Self {
        let (mut messages, begun) = match prompt {
            Prompt::Chat { messages, answer_prefix, .. } => (messages, answer_prefix),
            other => (vec![Message::new(Role::User, other.text())], String::new()),
        };
        let answer = if begun.is_empty() { answer.to_owned() } else { format!("{begun} {answer}") };
        messages.push(Message::new(Role::Assistant, answer));
        Self { messages }
    }
}

/// Writes prompts with their answers as rows `{"messages": […]}`; returns their number.
pub(crate) fn write(
    table: &'static str,
    answered: impl Iterator<Item = (Prompt, String)>,
    run: &mut Run<'_>,
) -> Result<usize, MethodError> {
    let chats: Vec<Chat> = answered.map(|(prompt, answer)| Chat::new(prompt, &answer)).collect();
    run.table(table, chats.len())?;
    chats.iter().enumerate().try_for_each(|(index, chat)| run.row(table, index, chat))?;
    Ok(chats.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_becomes_a_chat_and_what_the_answer_begins_with_its_beginning() {
        let chat = |prompt| serde_json::to_value(Chat::new(prompt, "fine")).expect("plain");
        let messages = vec![Message::new(Role::System, "be kind"), Message::new(Role::User, "how?")];
        let with_prefix = chat(Prompt::chat(messages, "Well:"));
        let said: Vec<_> =
            with_prefix["messages"].as_array().expect("a list").iter().map(|m| (&m["role"], &m["content"])).collect();
        assert_eq!(
            serde_json::json!(said),
            serde_json::json!([["system", "be kind"], ["user", "how?"], ["assistant", "Well: fine"]])
        );
        assert_eq!(chat(Prompt::Text("how?".into()))["messages"][0]["role"], "user");
    }
}
